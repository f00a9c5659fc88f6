"""A DRA driver on a real node: Kubernetes' own test driver, as a process, registered with the kubelet.

    with DraDriver(control_plane, node, "dra.example.com", devices=8) as driver:
        driver.kill(); driver.start()

It publishes one pool, named as the node, and prepares claims with a CDI file each. `devices=None`: it may not write ResourceSlices,
so that a test writes those it wants, and it prepares whatever claims were allocated of them.
"""

from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hack import yaml_text
from tests.cluster.api import ResourceSlice
from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node import kubelet
from tests.cluster.node.machine import MachineProcess
from tests.cluster.node.real_node import RealNode
from tests.cluster.waiting import wait_until
from tests.fakes import dra

Json = dict[str, Any]
PROGRAM = "dra-test-driver"
PATIENCE_SECONDS = 60.0
_ACCOUNT = "dra-test-driver"


class DraDriver:
    """Registered with the kubelet while entered, with a DeviceClass of all its devices; without any trace afterwards.

    extended_resource: the name by which pods may ask for one of its devices without a claim of their own.
    """

    def __init__(
        self, control_plane: ControlPlane, node: RealNode, name: str, devices: int | None, extended_resource: str = ""
    ) -> None:
        self.name, self.devices, self.extended_resource = name, devices, extended_resource
        self.device_class = name.partition(".")[0]
        self._control_plane, self._node = control_plane, node
        self.process = self._made()

    @property
    def pool(self) -> str:
        """Name of the pool that it publishes by itself."""
        return self._node.name

    def _made(self) -> MachineProcess:
        kubeconfig = self._control_plane.admin_kubeconfig
        if self.devices is None:
            kubeconfig = self._kubeconfig_without_slices()
        driver = [
            str(find([PROGRAM])[PROGRAM]),
            f"--kubeconfig={kubeconfig}",
            f"--drivername={self.name}",
            # it logs the kubelet's calls
            "-v=6",
            "kubelet-plugin",
            f"--node-name={self._node.name}",
            f"--num-devices={self.devices or 0}",
        ]
        # its own variable would count for more than the flag
        return self._node.process(self.device_class, ["/usr/bin/env", "--unset=KUBECONFIG", *driver])

    def _kubeconfig_without_slices(self) -> Path:
        self._control_plane.apply(yaml_text.dump_all(_account()))
        path = self._node.folder / f"{self.device_class}.kubeconfig"
        return self._control_plane.service_account_kubeconfig("default", _ACCOUNT, path, node_name=self._node.name)

    def __enter__(self) -> Self:
        self._control_plane.apply(
            yaml_text.dump(dra.device_class(self.device_class, self.name, self.extended_resource))
        )
        try:
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._remove()

    def start(self) -> None:
        """Start it, and wait until the kubelet has registered it and its slices are published."""
        # it does not make the folder of its socket
        self._outside(f"plugins/{self.name}").mkdir(parents=True, exist_ok=True)
        log = self.process.log
        before = log.stat().st_size if log.exists() else 0
        self.process.start()
        wait_until(partial(self._is_registered, before), f"the kubelet knows {self.name}", PATIENCE_SECONDS)
        if self.devices is not None:
            wait_until(self._is_published, f"slices of {self.name} are there", PATIENCE_SECONDS)

    def kill(self) -> None:
        """kill -9: its sockets stay, and for 30 s its slices, too."""
        self.process.kill()

    def slices(self) -> list[Json]:
        """Those of this driver on this node, as they are in the API."""
        listed = self._control_plane.client.list(ResourceSlice, fields={"spec.driver": self.name})
        return [dict(found) for found in listed if found["spec"].get("nodeName") == self._node.name]

    def _is_registered(self, log_offset: int) -> bool:
        """By the driver's word: a kubelet that knew another at that socket is connected at once, and registers this one later."""
        self.process.verify_alive()
        said = self.process.log.read_bytes()[log_offset:].decode(errors="replace")
        return any(
            '"handling request succeeded"' in line and "NotifyRegistrationStatus" in line for line in said.splitlines()
        )

    def _is_published(self) -> bool:
        self.process.verify_alive()
        published = [device for found in self.slices() for device in found["spec"].get("devices", [])]
        return len(published) == self.devices

    def _remove(self) -> None:
        self.process.kill()
        kubectl = self._control_plane.kubectl
        kubectl("delete", "deviceclass", self.device_class, "--ignore-not-found")
        # the kubelet would do that after half a minute
        kubectl("delete", "resourceslices", f"--field-selector=spec.driver={self.name}")
        for socket in (f"plugins_registry/{self.name}-reg.sock", f"plugins/{self.name}/dra.sock"):
            self._outside(socket).unlink(missing_ok=True)

    def _outside(self, path: str) -> Path:
        """Below the kubelet's folder."""
        return self._node.outside(f"{kubelet.ROOT}/{path}")


def _account() -> list[Json]:
    """What the driver needs to prepare claims, and no right to slices."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": "default"}
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": _ACCOUNT, "namespace": "default"}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": _ACCOUNT}, "rules": [rule]},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": _ACCOUNT},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
