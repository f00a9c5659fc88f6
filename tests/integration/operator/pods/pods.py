"""Pods that no kubelet runs, with what an agent says of them and what the operator makes of that."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.api import Object, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import PlayedNode, delete, pod_device


class Pods:
    """Pods of one namespace, and the PodDevices beside them."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self.client = control_plane.client
        self.namespace = namespace

    def run(self, name: str, node: str) -> str:
        """Make a pod that is bound to the node already; its uid."""
        spec = Object(nodeName=node, containers=[Object(name="main", image="none")])
        made = self.client.create(Pod(metadata=Object(name=name, namespace=self.namespace), spec=spec))
        return str(made.metadata.uid)

    @contextmanager
    def elsewhere(self, name: str) -> Iterator[tuple[str, str]]:
        """Such a pod on another Node: that Node's name, and the pod's uid. Both are removed."""
        with PlayedNode(self._control_plane) as other:
            try:
                yield other.name, self.run(name, other.name)
            finally:
                # nobody ends the pods of a node that is gone, until the controller manager notices
                self.remove(name)

    def run_many(self, wanted: list[str], node: str) -> dict[str, str]:
        """Make these pods, bound to the node already; their uids by name."""
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        made = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in wanted]
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        self._control_plane.kubectl("create", "-n", self.namespace, "-f", "-", stdin=body)
        uids = "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{'\\n'}{end}"
        lines = self._control_plane.kubectl("get", "pods", "-n", self.namespace, "-o", uids).splitlines()
        return dict(line.split() for line in lines)

    def remove(self, name: str) -> None:
        """Delete a pod and wait until the API has forgotten it."""
        delete(self.client, Pod, name, self.namespace)
        pods = self.client
        wait_until(
            lambda: name not in {p.metadata.name for p in pods.list(Pod, namespace=self.namespace) if p.metadata},
            f"pod {name} is gone",
        )

    def holds(self, name: str, uid: str, *device_ids: str, container: str = "main", **more: Any) -> dict[str, Any]:
        """An allocation, as an agent publishes it."""
        pod = {"namespace": self.namespace, "name": name, "podUID": uid}
        return {**pod, "container": container, "deviceIDs": list(device_ids), **more}

    def shown(self, name: str) -> dict[str, Any] | None:
        """Status of the PodDevice; None without one."""
        found = pod_device(self.client, self.namespace, name)
        return None if found is None else dict(found.status or {})

    def wait(
        self, name: str, is_so: Callable[[dict[str, Any] | None], bool], what: str, timeout_seconds: float = 60.0
    ) -> None:
        """Wait until the status of the PodDevice is so."""
        wait_until(lambda: is_so(self.shown(name)), f"PodDevice {name} {what}", timeout_seconds)

    def wait_devices(self, name: str, devices: str) -> Any:
        """Wait until the PodDevice shows those devices; the object."""
        self.wait(name, lambda status: status is not None and status.get("devices") == devices, f"shows {devices}")
        return pod_device(self.client, self.namespace, name)

    def wait_gone(self, name: str) -> None:
        """Wait until there is no such PodDevice; the garbage collector looks for new kinds every 30 s only."""
        self.wait(name, lambda status: status is None, "is gone", 90)
