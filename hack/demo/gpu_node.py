"""The node of the demos about parts of GPUs: its pods, their devices and the reasons why pods wait."""

import json
from typing import Any

import yaml
from nodedevice_api import assigned_parts, names

from hack.demo.narration import show, show_typed
from tests.cluster.cluster import a_pod
from tests.cluster.local.stack import Stack
from tests.cluster.observe import Observer, capacity

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

    def start_pod(self, name: str, limits: dict[str, int], scheduler: str | None = None) -> None:
        """Make a pod. scheduler: which one is to place it; None: the cluster's own."""
        self._cluster.apply(yaml.safe_dump(a_pod(name, _NAMESPACE, limits, scheduler=scheduler)))

    def end_pod(self, name: str) -> None:
        self._cluster.kubectl("delete", "pod", name, "-n", _NAMESPACE, "--wait=false")

    def status(self, resource_name: str) -> dict[str, Any]:
        """Status of the resource's NodeDevice."""
        name = names.node_device_name(NODE, resource_name)
        found: dict[str, Any] = json.loads(self._cluster.kubectl("get", "nodedevice", name, "-o", "json"))
        return dict(found.get("status", {}))

    def is_there(self, pod: str) -> bool:
        return bool(self._cluster.kubectl("get", "pod", pod, "-n", _NAMESPACE, "--ignore-not-found", "-o", "name"))

    def assigned(self, pod: str, resource_name: str) -> tuple[str, dict[str, int]]:
        """The node that the pod is bound to, and what the extender assigned to it there: parts by GPU. Empty: none yet."""
        found = json.loads(self._cluster.kubectl("get", "pod", pod, "-n", _NAMESPACE, "-o", "json"))
        meta = found["metadata"]
        text = meta.get("annotations", {}).get(names.ASSIGNED_PARTS_ANNOTATION)
        by_container = assigned_parts.decode(text, meta["uid"])[resource_name] if text else {}
        return found["spec"].get("nodeName", ""), dict(by_container.get("main", {}))

    def allocated(self, resource_name: str) -> dict[str, dict[str, int]]:
        """What the agent has allocated: parts by GPU, by the pod's name."""
        held = self.status(resource_name).get("allocations", ())
        return {pod["name"]: {each["parent"]: each["parts"] for each in pod["parts"]} for pod in held}

    def free(self, resource_name: str) -> dict[str, int]:
        """How many parts of each GPU are free."""
        return {gpu["id"]: gpu["parts"]["available"] for gpu in self.status(resource_name)["devices"]}

    def not_scheduled(self, pod: str) -> str:
        """What schedulers say of why the pod is Pending; empty: nothing."""
        return self._cluster.kubectl(*self._not_scheduled(pod))

    def show_not_scheduled(self, pod: str) -> None:
        self.show(*self._not_scheduled(pod))

    def show_where(self, pod: str) -> None:
        """Which node a pod is bound to. Not its phase: played nodes call every pod Running."""
        columns = "NAME:.metadata.name,SCHEDULER:.spec.schedulerName,NODE:.spec.nodeName"
        self.show("get", "pod", pod, "-n", _NAMESPACE, "-o", f"custom-columns={columns}")

    def _not_scheduled(self, pod: str) -> tuple[str, ...]:
        about = f"--field-selector=involvedObject.name={pod},reason=FailedScheduling"
        columns = "custom-columns=FROM:.reportingComponent,MESSAGE:.message"
        return "get", "events", "-n", _NAMESPACE, about, "-o", columns

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

    def show_devices(self, resource_name: str) -> None:
        """How many parts of each are free, or why it cannot be used."""
        show_typed(self._cluster, f"kubectl nodedevice devices --resource {resource_name}")

    def show_why(self, pod: str) -> None:
        """Why it waits."""
        show_typed(self._cluster, f"kubectl nodedevice why pod {pod} -n {_NAMESPACE}")
