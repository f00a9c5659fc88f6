"""The node of the demos about parts of GPUs: its pods, what they hold and what they wait for."""

import json
from typing import Any

import yaml
from nodedevice_api import names

from hack.cluster.cluster import a_pod
from hack.cluster.local.stack import Stack
from hack.cluster.observe import Observer, capacity
from hack.demo.narration import show

NODE = "gpu-node"
_NAMESPACE = "demo"


class GpuNode:
    """One node of a stack. nodes: watches the Nodes."""

    def __init__(self, stack: Stack, nodes: Observer) -> None:
        self._stack, self._nodes = stack, nodes
        self._cluster = stack.control_plane
        self._cluster.add_namespace(_NAMESPACE)

    def start_pods(self, **limits: dict[str, int]) -> None:
        """Make pods, by name with their limits."""
        self._cluster.apply(yaml.safe_dump_all([a_pod(name, _NAMESPACE, limit) for name, limit in limits.items()]))

    def end_pod(self, name: str) -> None:
        self._cluster.kubectl("delete", "pod", name, "-n", _NAMESPACE, "--wait=false", "--grace-period=0")

    def status(self, resource_name: str) -> dict[str, Any]:
        """Status of the resource's NodeDevice."""
        name = names.node_device_name(NODE, resource_name)
        found: dict[str, Any] = json.loads(self._cluster.kubectl("get", "nodedevice", name, "-o", "json"))
        return dict(found.get("status", {}))

    def holders(self) -> dict[str, str]:
        """What each pod that holds devices has, such as example.com/gpu=1, by its name."""
        return {name: status["resources"] for name, status in self._pod_devices().items()}

    def health(self, pod: str) -> str:
        """Health of the devices that this pod holds."""
        return str(self._pod_devices()[pod]["health"])

    def waiting(self, resource_name: str) -> dict[str, tuple[str, str]]:
        """Reason and message of each pod that waits for devices of this resource."""
        found = self.status(resource_name).get("waiting", ())
        return {pod["name"]: (pod["reason"], pod["message"]) for pod in found}

    def _pod_devices(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self._cluster.kubectl("get", "poddevices", "-n", _NAMESPACE, "-o", "json"))["items"]
        return {each["metadata"]["name"]: each["status"] for each in found if each.get("status", {}).get("resources")}

    def until_capacity(self, resource_name: str, expected: int, since: float) -> float:
        """Wait until the Node advertises so many; returns how many seconds after `since` it did. Raises TimeoutError."""
        return self._nodes.wait(lambda seen: capacity(seen, NODE, resource_name) == expected, since).at - since

    def show(self, *arguments: str) -> None:
        show(self._cluster, *arguments)

    def show_parts(self, resource_name: str) -> None:
        """How many parts of each GPU are free."""
        name = names.node_device_name(NODE, resource_name)
        path = '{range .status.devices[*]}{.id}: {.parts.available} of {.parts.total} free{"\\n"}{end}'
        self.show("get", "nodedevice", name, "-o", f"jsonpath={path}")

    def show_unhealthy(self, resource_name: str) -> None:
        """Which devices cannot be used, and why."""
        name = names.node_device_name(NODE, resource_name)
        path = '{range .status.devices[?(@.health=="Unhealthy")]}{.id} {.reason}: {.message}{"\\n"}{end}'
        self.show("get", "nodedevice", name, "-o", f"jsonpath={path}")

    def show_waiting(self, resource_name: str) -> None:
        """Why pods wait."""
        name = names.node_device_name(NODE, resource_name)
        path = '{range .status.waiting[*]}{.name} {.reason}: {.message}{"\\n"}{end}'
        self.show("get", "nodedevice", name, "-o", f"jsonpath={path}")
