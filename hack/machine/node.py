"""A node that is a machine of its own: systemd, cgroup v2, a stock kernel; containerd and the kubelet as their upstreams run them.

    with MachineNode.switched_on(control_plane, "node-a", folder, image, api_server) as node:
        node.wait_ready(); node.machine.reset(); node.wait_ready()

The control plane runs in the same network namespace (see `network`).
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from hack.machine import network
from hack.machine.guest import NODE, PROGRAMS
from hack.machine.image import MachineImage
from hack.machine.packages import run
from hack.machine.virtual_machine import VirtualMachine
from tests.cluster.api import Node
from tests.cluster.control_plane import kubeconfigs
from tests.cluster.control_plane.certificates import Identity
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.cluster.node import containerd, kubelet
from tests.cluster.nodes import is_schedulable

_READY_SECONDS = 240.0
_POLL_SECONDS = 0.2
_IDENTITY_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class MachineOptions:
    """systemd_cgroups: the driver of runc and kubelet; cgroupfs otherwise. validator: NRI's required plugins are enforced.

    shutdown_seconds: what pods have before an orderly shutdown. write_log, numa, iommu: as of VirtualMachine.
    """

    systemd_cgroups: bool = True
    nri: bool = True
    validator: bool = True
    shutdown_seconds: int = 0
    write_log: bool = False
    numa: bool = False
    iommu: bool = False


class MachineNode:
    """Made by `switched_on`."""

    def __init__(self, control_plane: ControlPlane, name: str, machine: VirtualMachine) -> None:
        self.name = name
        self.machine = machine
        self._control_plane = control_plane
        # the last boot ID that was waited for
        self._boot = ""

    @classmethod
    @contextmanager
    def switched_on(
        cls,
        control_plane: ControlPlane,
        name: str,
        folder: Path,
        image: MachineImage,
        api_server: str,
        number: int = 11,
        options: MachineOptions | None = None,
    ) -> Iterator[Self]:
        """A booting node: several can boot in parallel. api_server: its address there. number: last part of its own
        address.

        Raises ClusterError.
        """
        address, tap, pods = f"10.77.0.{number}", f"tap{number}", f"10.88.{number}.0/24"
        folder.mkdir(parents=True)
        options = options or MachineOptions()
        identity = _identity(control_plane, name, folder, api_server, address, pods, options)
        network.add_tap(tap, address, pods)
        machine = VirtualMachine(
            name,
            folder / "m",
            image,
            identity,
            address,
            tap,
            write_log=options.write_log,
            numa=options.numa,
            iommu=options.iommu,
        )
        node = cls(control_plane, name, machine)
        try:
            machine.start()
            yield node
        finally:
            machine.kill()
            network.remove_tap(tap)
            machine.remove_files()

    def verify_alive(self) -> None:
        """Raises ComponentError when the emulator has ended."""
        self.machine.verify_alive()

    def wait_ready(self, timeout_seconds: float = _READY_SECONDS) -> None:
        """Wait until the Node is Ready, from a kubelet of a new boot, and its shell responds.

        Raises TimeoutError, ComponentError.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            self.machine.keep_booting()
            # polls the API: a shell inside would slow the start down
            boot = self._boot_shown() if is_schedulable(self._control_plane.client, self.name) else self._boot
            if boot != self._boot:
                self._boot = boot
                return self.machine.wait_door(timeout_seconds)
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {self.name} is not Ready:\n{self._journal()}")
            time.sleep(_POLL_SECONDS)

    def _journal(self) -> str:
        with contextlib.suppress(OSError, CommandError):
            return self.machine.run("journalctl -n 40 --no-pager")
        return self.machine.console_end()

    def _boot_shown(self) -> str:
        status = self._control_plane.client.get(Node, self.name).status
        return str(status.nodeInfo.bootID) if status is not None and status.nodeInfo is not None else ""


def _identity(
    control_plane: ControlPlane,
    name: str,
    folder: Path,
    api_server: str,
    address: str,
    pods: str,
    options: MachineOptions,
) -> Path:
    """The read-only disk with certificates and configurations."""
    tree, authority = folder / "identity", control_plane.authority
    (tree / "cni").mkdir(parents=True)
    client = authority.client(f"kubelet-{name}", Identity(f"system:node:{name}", "system:nodes"))
    serving = authority.server(f"kubelet-serving-{name}", address)
    own = ((authority.file, "ca.crt"), (serving.certificate, "serving.crt"), (serving.key, "serving.key"))
    for source, target in own:
        shutil.copy2(source, tree / target)
    at = Path(NODE)
    settings = kubelet.KubeletSettings(
        node_name=name,
        address=address,
        cgroup="",
        kubeconfig=at / "kubeconfig",
        authority=at / "ca.crt",
        serving=replace(serving, certificate=at / "serving.crt", key=at / "serving.key"),
    )
    url = f"https://{api_server}:443"
    kubeconfigs.write_for_certificate(tree / "kubeconfig", url, authority.file, client)
    (tree / "kubelet.yaml").write_text(kubelet.configuration(settings, _of_a_whole_machine(options)))
    command = kubelet.command(Path(PROGRAMS) / "kubelet", at / "kubelet.yaml", settings)
    (tree / "kubelet.sh").write_text(f"exec {' '.join(command)}\n")
    runtime = containerd.RuntimeSettings(
        cni_bin_dirs=[Path(PROGRAMS)],
        cni_conf_dir=at / "cni",
        runc=Path("/usr/sbin/runc"),
        nri=options.nri,
        validator=options.validator,
        systemd_cgroups=options.systemd_cgroups,
    )
    (tree / "containerd.toml").write_text(containerd.configuration(runtime))
    (tree / "cni/10-bridge.conflist").write_text(
        containerd.network("cni0", pods, pods.replace(".0/24", ".250"), routed=True)
    )
    disk = folder / "identity.img"
    with disk.open("wb") as file:
        file.truncate(_IDENTITY_BYTES)
    run(["mkfs.ext4", "-q", "-F", "-d", str(tree), str(disk)])
    return disk


def _of_a_whole_machine(options: MachineOptions) -> dict[str, Any]:
    """Settings of a kubelet that has a whole machine."""
    grace = f"{options.shutdown_seconds}s"
    return {
        "cgroupDriver": "systemd" if options.systemd_cgroups else "cgroupfs",
        **dict.fromkeys(("cgroupRoot", "failCgroupV1", "failSwapOn", "oomScoreAdj", "localStorageCapacityIsolation")),
        "enforceNodeAllocatable": ["pods"],
        # tests fill the disk, faster than a kubelet would evict pods for it
        "evictionHard": {"memory.available": "10Mi"},
        # an emulated machine is slow
        "runtimeRequestTimeout": "4m",
        "shutdownGracePeriod": grace,
        "shutdownGracePeriodCriticalPods": "5s" if options.shutdown_seconds else grace,
    }
