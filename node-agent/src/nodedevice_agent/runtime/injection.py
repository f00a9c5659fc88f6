"""What a container gets when it is created, decided from what the device manager holds.

A container gets all of its devices or is refused with a sentence that says why; the kubelet then tries again. Nothing here waits
or asks anybody: what has not been allocated yet is refused. Which pods ask is known from the API, from what is allocated (after
a restart, with the API away), or from the annotation that holds a pod while this plugin is away. Reads only; what comes of a
creation is in runtime_events.
What the pod sets itself has its way, as in the kubelet, which puts it after what plugins answered.
Source: kubelet GetDeviceRunContainerOptions and GenerateRunContainerOptions; required plugins: containerd/nri
plugins/default-validator @ v0.12.
"""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, NRI_PLUGIN, REQUIRED_PLUGINS_ANNOTATION

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, merged, unrestricted, without
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import NO_SETTINGS, ContainerSettings, Pod
from nodedevice_agent.devicemanager.runtime import Sandbox
from nodedevice_agent.runtime.marks import marks_of, written
from nodedevice_agent.runtime.prestart import unprepared

# a YAML list of plugin names; whatever else YAML can do, a name in it stands between characters that are in no name
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
# Source: kubelet pkg/kubelet/config/common.go, applyDefaults @ 1.37
_CONFIG_HASH = "kubernetes.io/config.hash"
_HASH = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """message: for the pod's Event. may_pass_soon: something is under way that may end it within moments."""

    message: str
    may_pass_soon: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What a container is created with. allocations: what has to be on disk before it is. left_out: what plugins answered and
    the pod has its own of, as words.
    """

    edits: ContainerEdits
    allocations: tuple[Allocation, ...]
    left_out: tuple[str, ...] = ()


Answer = Given | Refusal | None


class Injection:
    """of_kubelet: resources of the kubelet's own device manager on this node, which injects them itself."""

    def __init__(self, manager: DeviceManager, of_kubelet: Container[str]) -> None:
        self._manager = manager
        self._of_kubelet = of_kubelet

    def answer(self, sandbox: Sandbox, container: str) -> Answer:
        """container: its name. None: it asks for nothing that is given out here."""
        pod = self._manager.pod(sandbox.uid)
        if pod is None:
            return self._of_unknown_pod(sandbox, container)
        if not pod.device_requests:
            return None
        return self._of_pod(sandbox, pod, container)

    def _of_pod(self, sandbox: Sandbox, pod: Pod, name: str) -> Answer:
        manager = self._manager
        asked = [need.resource_name for need in pod.device_requests if need.container == name]
        missing = [n for n in asked if n in manager.resources and manager.book.of(pod.uid, name, n) is None]
        if missing:
            return self._missing(pod, name, missing[0])
        if manager.book.of_container(pod.uid, name):
            return self._held(pod.uid, name, pod.container_settings(name))
        unserved = [name for name in asked if name not in self._of_kubelet]
        is_another_ours = any(need.resource_name in manager.resources for need in pod.device_requests)
        # held for us, and nothing of what it asks for is known here: it must be one of these. Where another is known, these
        # may well be somebody else's
        if unserved and not is_another_ours and is_held_for_us(sandbox, name):
            return Refusal(f"no device plugin has registered {unserved[0]} with the agent of this node yet")
        return None

    def _of_unknown_pod(self, sandbox: Sandbox, container: str) -> Answer:
        """As after a restart, before the API has told of its pods: what is allocated says what was asked for.

        What the pod sets itself nobody knows then.
        """
        if self._manager.book.has_pod(sandbox.uid):
            is_asking = bool(self._manager.book.of_container(sandbox.uid, container))
            return self._held(sandbox.uid, container, NO_SETTINGS) if is_asking else None
        if is_held_for_us(sandbox, container):
            who = f"pod {sandbox.namespace}/{sandbox.name}"
            if _is_named_by_its_manifest(sandbox):
                return Refusal(
                    f"static {who} has a metadata.uid in its manifest, by which the agent of this node cannot tell which pod of "
                    "the API it is: remove metadata.uid from the manifest, and the kubelet makes one that it can"
                )
            return Refusal(f"the API server has not told the agent of this node of {who} yet", may_pass_soon=True)
        return None

    def _missing(self, pod: Pod, container: str, resource_name: str) -> Refusal:
        about = f"container {container} has no {resource_name} yet"
        if self._manager.is_recovering:
            return Refusal(f"{about}: who holds what is being read back from the API after the checkpoint was lost")
        if pod.is_terminating:
            return Refusal(f"{about}: pod {pod.namespace}/{pod.name} is ending and gets nothing more")
        if pod.uid in self._manager.in_progress():
            return Refusal(f"{about}: a device plugin is being asked", may_pass_soon=True)
        waiting = self._manager.pending_of(pod.uid)
        if waiting is None:
            return Refusal(f"{about}: it has not been allocated")
        return Refusal(f"{about}: {waiting.message} ({waiting.reason})")

    def _held(self, pod_uid: str, container: str, own: ContainerSettings) -> Given | Refusal:
        if self._manager.book.is_releasing(pod_uid):
            return Refusal(f"the pod of container {container} is over, and its devices are being taken back")
        found = unprepared(self._manager, pod_uid, container)
        if found is not None:
            about = f"{found.resource_name} is not prepared for container {container} (PreStartContainer)"
            why = found.failure or "its device plugin has not answered yet"
            return Refusal(f"{about}: {why}", may_pass_soon=found.is_called)
        allocations = self._manager.book.of_container(pod_uid, container)
        for allocation in allocations:
            if allocation.response is None:
                about = f"how container {container} reaches its {allocation.resource_name} was lost with the checkpoint"
                return Refusal(f"{about}, and its device plugin has not answered anew yet", may_pass_soon=True)
        return self._given(container, own, allocations)

    def _given(self, container: str, own: ContainerSettings, allocations: Sequence[Allocation]) -> Given | Refusal:
        answers = {}
        for allocation in allocations:
            if allocation.edits is None:
                problem = allocation.response_problem
                return Refusal(f"what a device plugin answered for container {container} cannot be read: {problem}")
            answers[allocation.resource_name] = allocation.edits
        kept = {name: without(edits, own.envs, own.paths) for name, edits in answers.items()}
        edits, conflicts = merged({name: edits for name, (edits, _) in kept.items()})
        if conflicts:
            first = conflicts[0]
            return Refusal(
                f"the device plugins of {first.used} and {first.passed_over} want different things of {first.what} {first.name} in "
                f"container {container}; mend one of them, or ask for the two in different containers"
            )
        if own.is_privileged:
            edits = unrestricted(edits)
        mark = {CONTAINER_DEVICES_ANNOTATION: written(marks_of(allocations))}
        left_out = tuple(dict.fromkeys(what for _, words in kept.values() for what in words))
        return Given(replace(edits, annotations={**edits.annotations, **mark}), tuple(allocations), left_out)


def _is_named_by_its_manifest(sandbox: Sandbox) -> bool:
    """A static pod whose author chose its UID. In the API the mirror pod has another, and whatever annotation says that the two
    belong together, any pod could have.
    """
    return sandbox.annotations.get(_CONFIG_HASH) == sandbox.uid and not _HASH.fullmatch(sandbox.uid)


def is_held_for_us(sandbox: Sandbox, container: str) -> bool:
    """Whether the runtime is told to create this container only with us; the nearest of the annotations counts."""
    key = REQUIRED_PLUGINS_ANNOTATION
    for nearest in (f"{key}/container.{container}", f"{key}/pod", key):
        value = sandbox.annotations.get(nearest)
        if value is not None:
            return NRI_PLUGIN in _NOT_IN_NAMES.split(value)
    return False
