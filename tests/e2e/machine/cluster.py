"""A cluster of emulated machines with the chart installed: what a test of them needs besides `InstalledCluster`."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from docs.tried_nodes import TriedNode
from hack.machine import network
from hack.machine.guest import NODE as AT_NODE
from hack.machine.guest import PROGRAMS
from hack.machine.image import machine_image
from hack.machine.node import MachineNode, MachineOptions
from hack.machine.virtual_machine import VirtualMachine
from tests.cluster.build.images import TEST_IMAGE
from tests.cluster.build.product_images import ProductImage, product_images
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.control_plane.layout import api_address
from tests.cluster.node.in_cluster_api import relayed
from tests.cluster.processes.processes import removed_at_the_end
from tests.e2e.chart.cluster import NODE, InstalledCluster, Json
from tests.e2e.recording import described

SERIAL, SELECTED = "example.com/serial", "example.com/selected"
BY_ID = "/dev/serial/by-id"
FUSE, LOOP = "/dev/fuse", "/dev/loop3"


@dataclass(frozen=True)
class HotPlugged:
    """A kind of device besides serial ports. pattern: of its files, by stable names. backend: command and arguments of the monitor.

    driver, properties: as of the monitor's device_add.
    """

    resource: str
    pattern: str
    path: str
    backend: tuple[str, Json]
    driver: str
    properties: Json


_SECTORS = {"driver": "null-co", "size": 16 * 1024**2, "read-zeroes": True}
NVME = HotPlugged(
    "example.com/nvme",
    "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_FLASH",
    "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_FLASH",
    ("blockdev-add", {"node-name": "flash", **_SECTORS}),
    "nvme",
    {"drive": "flash", "serial": "FLASH", "bus": "rp1"},
)
HOT_PLUGGED = (
    NVME,
    HotPlugged(
        "example.com/usb-disk",
        "/dev/disk/by-id/usb-*",
        "/dev/disk/by-id/usb-QEMU_QEMU_HARDDISK_STICK-0:0",
        ("blockdev-add", {"node-name": "stick", **_SECTORS}),
        "usb-storage",
        {"drive": "stick", "serial": "STICK", "bus": "xhci.0", "port": "3"},
    ),
    HotPlugged(
        "example.com/virtio-port",
        "/dev/virtio-ports/*",
        "/dev/virtio-ports/tests",
        ("chardev-add", {"id": "tests", "backend": {"type": "ringbuf", "data": {"size": 4096}}}),
        "virtserialport",
        {"chardev": "tests", "name": "tests", "bus": "vser.0"},
    ),
)
# the last number of a machine's address
FIRST_ADDRESS = 11
SECOND_NODE = "node-2"
# emulated, a pod takes six seconds to start, and a machine half a minute; others use this one too
_PATIENCE_SECONDS = 600.0


class MachineCluster(InstalledCluster):
    """Made by `start`: machines, all of them Ready. node, machine: the first one."""

    patience_seconds = _PATIENCE_SECONDS
    helm_patience = f"{_PATIENCE_SECONDS:.0f}s"
    # what asks and answers takes from the machine's time
    every_seconds = 0.1

    def __init__(
        self,
        control_plane: ControlPlane,
        nodes: Sequence[MachineNode],
        images: Mapping[str, ProductImage],
        folder: Path,
    ) -> None:
        super().__init__(control_plane, self._verify_alive_all, images, folder)
        self.nodes = {node.name: node for node in nodes}
        self.node, self.machine = nodes[0], nodes[0].machine
        self._plugged: dict[str, tuple[VirtualMachine, str]] = {}
        self._installed: Json = {}

    def _verify_alive_all(self) -> None:
        for node in self.nodes.values():
            node.verify_alive()

    @classmethod
    @contextmanager
    def start(
        cls,
        folder: Path,
        progress: Callable[[str], None],
        options: MachineOptions | None = None,
        number: int = 0,
        kernel_suite: str = "",
        names: Sequence[str] = (NODE,),
    ) -> Iterator[Self]:
        """folder: made for it, its path short. number: of the cluster, where there is more than one.

        kernel_suite: as of machine_image. names: of its nodes, which start side by side.
        Raises ClusterError when a part cannot be had, or does not come up.
        """
        services = network.services(number)
        api_server = api_address(services)
        images = product_images(progress)
        image = machine_image([each.archive for each in images.values()], progress, kernel_suite)
        network.create(api_server)
        with ExitStack() as opened:
            control_plane = opened.enter_context(ControlPlane.start(folder / "cluster", progress, services))
            opened.enter_context(relayed(control_plane, api_server, folder / "relay.log"))
            nodes = [
                opened.enter_context(
                    MachineNode.switched_on(
                        control_plane, name, folder / name, image, api_server, FIRST_ADDRESS + 10 * number + at, options
                    )
                )
                for at, name in enumerate(names)
            ]
            for node in nodes:
                node.wait_ready()
                progress(f"machine {node.name} is Ready")
            yield cls(control_plane, nodes, images, folder)

    def install(self, *generic: Json, delivery: str = "auto", operator: Json | None = None, **config: Any) -> None:
        """The chart, with these resources of the generic plugin. operator: its values; one replica unless they are given.

        config: more of the agents'.
        """
        self._installed = self._values(generic, {"delivery": delivery, **config}, operator)
        self.release.install(self._installed)

    def change(self, *generic: Json, **config: Any) -> None:
        """The agents' configuration, by an upgrade unless it is that already: as of `install`."""
        values = self._values(generic, {"delivery": "auto", **config})
        if values != self._installed:
            self._installed = values
            self.release.upgrade(values)

    def _values(self, generic: Sequence[Json], config: Json, operator: Json | None = None) -> Json:
        agents = {"config": {"plugins": {"generic": list(generic)}, **config}}
        # the Job that updates the kinds takes twenty seconds here; the chart's own tests have it
        return self.values(agents=agents, operator=operator or {"replicas": 1}, crds={"upgrade": False})

    def clear(self) -> None:
        """No pod and no serial port is left of what a test had, and no device is held."""
        # by force: their processes end as early, and nobody waits four seconds for what a kubelet cleans up afterwards
        self.control_plane.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
        self.unplug_all()
        self.wait(lambda: not self.pods() and self._are_all_free(), "no pod is left, and no device is held")

    def _are_all_free(self) -> bool:
        return not any(each["status"].get("allocations") for each in self.node_devices())

    def save_logs(self, folder: Path) -> None:
        """What a person needs to find out what went wrong."""
        folder.mkdir(parents=True, exist_ok=True)
        for node in self.nodes.values():
            shutil.copy2(node.machine.console, folder / f"{node.name}-console.log")
        (folder / "state.txt").write_text(self.state())

    def described(self) -> TriedNode:
        """What tests run on; the first machine says it. The chart is installed."""
        shell = self.machine.run
        return described(
            self.control_plane,
            NODE,
            shell=shell,
            containerd=shell(f"{PROGRAMS}/containerd --config {AT_NODE}/containerd.toml config dump 2>/dev/null"),
            oci=shell("runc --version"),
            init=shell("systemctl --version"),
            delivery=self.agents_delivery(),
            helm=self.release.version(),
        )

    def devices_of(self, pod: str, resource: str = SERIAL, node: str = NODE) -> list[str]:
        """IDs, as the API shows them."""
        found = self.node_device(resource, node).get("status", {}).get("allocations", [])
        return [device for each in found if each["name"] == pod for device in each["deviceIDs"]]

    def unhealthy(self, resource: str, node: str = NODE) -> list[str]:
        """IDs of devices that are not healthy, as the NodeDevice shows them."""
        devices = self.node_device(resource, node)["status"]["devices"]
        return sorted(each["id"] for each in devices if each["health"] != "Healthy")

    def is_running_since(self, pod: str, moment: datetime) -> bool:
        """Whether all its containers run, and began after that."""
        states = self.pod(pod)["status"].get("containerStatuses", [])
        began = [each["state"].get("running", {}).get("startedAt", "") for each in states]
        return bool(began) and all(each and datetime.fromisoformat(each) >= moment for each in began)

    def is_running_again(self, pod: str) -> bool:
        """Whether a container of it was started since its machine was."""
        status = self.pod(pod)["status"]
        states = status.get("containerStatuses", [])
        is_again = [each["restartCount"] > 0 and "running" in each["state"] for each in states]
        return status["phase"] == "Running" and bool(is_again) and all(is_again)

    def is_ready(self, node: str = NODE) -> bool:
        """Whether the Node is."""
        conditions = self.node_object(node)["status"]["conditions"]
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def plug(self, serial: str, port: str, bus: str = "xhci.0", node: str = NODE) -> None:
        """A USB serial port. serial: another one in the whole cluster."""
        machine = self.nodes[node].machine
        machine.add_serial(serial, port, bus)
        self._plugged[serial] = machine, port

    def plug_named(self, serial: str, port: str) -> None:
        """Alone, so that the kernel names it before the next."""
        self.plug(serial, port)
        self.machine.run(f"until ls {BY_ID} 2>/dev/null | grep -q {serial}; do sleep 0.2; done")

    def unplug(self, serial: str) -> None:
        machine, _ = self._plugged[serial]
        machine.remove_serial(serial)
        del self._plugged[serial]

    def unplug_all(self) -> None:
        for serial in list(self._plugged):
            self.unplug(serial)
        for node in self.nodes:
            self.wait(partial(self._is_without_ports, node), "no serial port is left")

    def _is_without_ports(self, node: str) -> bool:
        return not self.capacity(node).get(SERIAL)

    def heard(self, serial: str) -> str:
        """What was written to the serial port since the last time."""
        machine, _ = self._plugged[serial]
        return machine.heard(serial)

    def kernel_names(self) -> dict[str, str]:
        """As ttyUSB0, by the serial of each port that is plugged in and has its stable name."""
        found = self.machine.run(
            f"cd {BY_ID} 2>/dev/null && for port in *; do echo $port $(readlink $port); done; true"
        )
        names = dict(line.split() for line in found.splitlines() if " " in line)
        by_serial = {port.split("_")[-1].split("-")[0]: name.rpartition("/")[2] for port, name in names.items()}
        return dict(sorted(by_serial.items()))

    def until_heard(self, serial: str, text: str) -> None:
        """Until that was written to the serial port, from now on."""
        self.heard(serial)
        self.wait(lambda: text in self.heard(serial), f"serial port {serial} hears {text}", every_seconds=0.2)


@contextmanager
def machine_cluster(progress: Callable[[str], None], **more: Any) -> Iterator[MachineCluster]:
    """In a folder of its own. more: as of MachineCluster.start."""
    # for what holds sockets: a socket's path has a hundred characters at most
    folder = Path(mkdtemp(prefix="nd-"))
    with removed_at_the_end(folder), MachineCluster.start(folder, progress, **more) as cluster:
        yield cluster


def serial_ports() -> Json:
    return files(SERIAL, f"{BY_ID}/*")


def files(resource: str, pattern: str) -> Json:
    return {"resourceName": resource, "groups": [{"paths": [{"path": pattern}]}]}


def device(name: str, path: str, permissions: str) -> Json:
    """A resource of one device file that many pods may have."""
    return {
        "resourceName": f"example.com/{name}",
        "groups": [{"count": 4, "paths": [{"path": path, "permissions": permissions}]}],
    }


def selected_ports() -> Json:
    """All serial ports of that vendor, which containers get under the kernel's names."""
    return {"resourceName": SELECTED, "groups": [{"select": {"usb": {"vendor": "0403"}, "subsystems": ["tty"]}}]}


def talker(name: str, resource: str = SERIAL, node: str = "") -> Json:
    """A pod that writes its name to each serial port that it was given, again and again. node: the only one for it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": _talking(name, resource) | ({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
    }


def talkers(name: str, replicas: int) -> Json:
    """A Deployment of pods that write that name to a serial port each."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _talking(name, SERIAL)},
        },
    }


def two_talkers(cluster: MachineCluster, ports: Mapping[str, str], resource: str = SERIAL) -> dict[str, str]:
    """Pods `one` and `two`, each of which writes to its port. ports: by serial. Returns the serial of each pod's port."""
    for serial, port in ports.items():
        cluster.plug_named(serial, port)
    cluster.wait_capacity(resource, 2)
    serial_of = {}
    for name in ("one", "two"):
        cluster.run(talker(name, resource))
        (held,) = cluster.devices_of(name, resource)
        serial_of[name] = next(serial for serial in ports if serial in held)
    for name, serial in serial_of.items():
        cluster.until_heard(serial, name)
    return serial_of


def _talking(name: str, resource: str) -> Json:
    ports = "/dev/ttyUSB*" if resource == SELECTED else f"{BY_ID}/*"
    script = f'while true; do for port in {ports}; do echo "$NAME" > "$port"; done; sleep 0.5; done'
    container: dict[str, Any] = {
        "name": "main",
        "image": TEST_IMAGE,
        "command": ["/bin/sh", "-c", script],
        "env": [{"name": "NAME", "value": name}],
        "resources": {"limits": {resource: "1"}},
    }
    return {"containers": [container], "terminationGracePeriodSeconds": 1, "enableServiceLinks": False}
