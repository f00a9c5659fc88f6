"""Decides whether an install runs: finds the missing parts from the workloads, pods and NodeDevices in the API. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hack.install.facts import Json

# reasons of a waiting container that do not end by themselves
_PULLS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_OF = "app.kubernetes.io/component"


@dataclass(frozen=True)
class Rollout:
    """ready, wanted: agents of the present image and configuration. has_operator: one runs. devices: NodeDevices with
    content.

    has_agents: they belong to the release; without them, as without an operator, those run elsewhere and are not
    awaited.
    troubles: of pods, which may not end by themselves. missing: these, or else the parts that are not ready yet. Both
    for people.
    """

    ready: int
    wanted: int
    has_operator: bool
    has_agents: bool
    devices: tuple[str, ...]
    troubles: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Everything runs with the present images, on every node."""
        return self.has_operator and self.ready == self.wanted and (self.wanted > 0 or not self.has_agents)

    @property
    def is_begun(self) -> bool:
        """A node serves devices, and an operator turns them into capacity."""
        return self.has_operator and bool(self.devices)


def rollout(workloads: Sequence[Json], pods: Sequence[Json], devices: Sequence[Json]) -> Rollout:
    """workloads: the release's DaemonSets and Deployments. pods: of its namespace. devices: all NodeDevices."""
    sets = [each for each in workloads if each["kind"] == "DaemonSet"]
    wanted = sum((each.get("status") or {}).get("desiredNumberScheduled", 0) for each in sets)
    templates = [each["spec"]["template"] for each in workloads]
    ours = [pod for pod in pods if any(_is_of(pod, each) for each in templates)]
    agents = [pod for pod in ours if _component(pod) == "agent"]
    nodes = {pod["spec"].get("nodeName") for pod in agents if _is_ready(pod)}
    troubles = tuple(dict.fromkeys(words for pod in ours if (words := _trouble(pod))))
    filled = [each for each in devices if each.get("status") and (not sets or _node(each) in nodes)]
    is_elsewhere = bool(sets) and not any(_component(each) == "operator" for each in workloads)
    has_operator = is_elsewhere or any(_component(pod) == "operator" and _is_ready(pod) for pod in ours)
    unexplained = _unexplained(bool(ours), len(nodes), wanted if sets else -1, has_operator)
    return Rollout(
        ready=len(nodes),
        wanted=wanted,
        has_operator=has_operator,
        has_agents=bool(sets),
        devices=tuple(sorted(each["metadata"]["name"] for each in filled)),
        troubles=troubles,
        missing=troubles or tuple(unexplained),
    )


def _unexplained(has_pods: bool, ready: int, wanted: int, has_operator: bool) -> Iterable[str]:
    """The missing parts if no pod has trouble. wanted: agents; negative if they do not belong to the release."""
    if wanted == 0:
        yield "no node gets an agent: compare `agents.nodeSelector` with the labels of your nodes"
    elif not has_pods:
        yield "no pod has been made: `kubectl describe` the DaemonSet, whose Events say why"
    elif ready < wanted:
        yield f"{ready} of {wanted} agents are ready"
    if not has_operator:
        yield "no operator is ready"


def _trouble(pod: Json) -> str:
    """The obstacle that keeps a pod from being ready, without its random suffix; empty if it is ready, or only starts."""
    name, node = _component(pod), pod["spec"].get("nodeName", "")
    where = f"the {name} on {node}" if node else f"the {name}"
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return f"{where} has no node: {condition.get('message', '')}"
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), " ".join(waiting.get("message", "").split())
        if reason in _PULLS:
            # the registry's message comes last, and after each attempt
            words = "it is not on that node" if reason == "ErrImageNeverPull" else message.rpartition(": ")[2]
            return f"{where} lacks its image {_image(pod['spec'])} ({words}): {_pull_remedy(reason, message)}"
        if reason == "CrashLoopBackOff":
            ended = ((container.get("lastState") or {}).get("terminated") or {}).get("message", "").strip()
            return f"{where} ends again and again: {ended.splitlines()[-1] if ended else message}"
        if reason and reason not in ("ContainerCreating", "PodInitializing"):
            return f"{where} cannot start: {reason}, {message}"
    return ""


def _pull_remedy(reason: str, message: str) -> str:
    if reason == "ErrImageNeverPull":
        return "`make install` again brings it"
    if "HTTP response to HTTPS" in message:
        return "the registry speaks HTTP, which the nodes' runtime has to be configured for (docs/install.md)"
    if "401" in message or "403" in message or "authoriz" in message.lower():
        return "the registry wants a login: name a Secret of it in image.pullSecrets by VALUES"
    return "compare REGISTRY with what the nodes can reach"


def _is_of(pod: Json, template: Json) -> bool:
    """Whether a running pod has the image and the annotations of a template; a configuration's checksum is one of these."""
    had, wanted = ((each.get("metadata") or {}).get("annotations") or {} for each in (pod, template))
    is_current = _image(pod["spec"]) == _image(template["spec"]) and wanted.items() <= had.items()
    return is_current and not pod["metadata"].get("deletionTimestamp")


def _image(pod: Mapping[str, Any]) -> str:
    return str(pod["containers"][0]["image"])


def _component(item: Json) -> str:
    return str((item["metadata"].get("labels") or {}).get(_OF, ""))


def _node(device: Json) -> str:
    return str((device.get("spec") or {}).get("nodeName", ""))


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
