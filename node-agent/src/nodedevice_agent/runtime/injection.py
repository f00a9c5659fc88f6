"""Decides from the device manager's state what a new container gets.

A container gets all its devices, or is refused with a reason; the kubelet then retries. Pods with device requests are known from
the API, from their allocations (after a restart without the API server), or from the annotation that makes the runtime require this
plugin. The pod's own settings win, as in the kubelet, except variables that the hook of a built-in plugin decides (creation_hooks).

A grant has a mark: the runtime keeps an annotation with a fingerprint of the container's devices, by which the agent recognizes it
after a restart. The annotation belongs to the container, not to the pod, so the pod's author cannot set it.
Source: kubelet GetDeviceRunContainerOptions and GenerateRunContainerOptions; required plugins: containerd/nri
plugins/default-validator @ v0.12.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, DELIVERY_KUBELET, NRI_PLUGIN, REQUIRED_PLUGINS_ANNOTATION

from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateOnce
from nodedevice_agent.devicemanager.allocation.held_calls import PendingPreStart
from nodedevice_agent.devicemanager.allocation.stored_responses import problem
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, EditConflict, merged, unrestricted, without
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import MAX_SETTINGS, NO_SETTINGS, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox, ShownSettings
from nodedevice_agent.devicemanager.static_pods import CONFIG_HASH, is_config_hash
from nodedevice_agent.plugins.contract import Creation, CreationRefused, HookFailed
from nodedevice_agent.runtime.creation_hooks import CreationHooks, Hooked

# separators in a YAML list of plugin names: no name contains these characters
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_FINGERPRINT_DIGITS = 12
_REMEDY = "split it into smaller pods"


class InjectionVersion(Struct, frozen=True):
    """The inputs of a grant, which is valid while they stay equal.

    pod: None until the API has listed it. missing: requested resources without an allocation, or with fewer devices than requested.
    pre_start: the pending call of PreStartContainer. problem: why a response does not fit its devices, or no longer does. A device
    stays with its container if it becomes unhealthy, is cordoned, or is no longer listed by an external plugin.
    """

    pod: Pod | None
    allocations: tuple[Allocation, ...]
    missing: tuple[str, ...]
    is_releasing: bool
    pre_start: PendingPreStart | None
    problem: str = ""


class Grant(Struct, frozen=True):
    """The edits for a new container. Use it only while the version is current and its allocations are on disk.

    omitted: describes parts of the plugins' responses that the pod's own settings replace. overruled: decisions of hooks that
    replace the container's own variables.
    """

    edits: ContainerEdits
    version: InjectionVersion
    omitted: tuple[str, ...] = ()
    overruled: tuple[Creation, ...] = ()


class Refusal(Struct, frozen=True):
    """message: for the pod's Event. is_temporary: work in progress may resolve it within moments."""

    message: str
    is_temporary: bool = False


Decision = Grant | Refusal | None


class Injection(Struct, eq=False):
    """Decides for every new container of the node.

    of_kubelet: resources that the kubelet's device manager serves and injects. kubelet_problem: why these are unknown; else empty.
    hooks: of built-in plugins. is_kubelets: whether the kubelet still delivers an allocation that it made.
    """

    manager: DeviceManager
    hooks: CreationHooks
    of_kubelet: Container[str] = ()
    kubelet_problem: Callable[[], str] = str
    is_kubelets: Callable[[Allocation], bool] = lambda allocation: False

    def version(self, pod_uid: str, container: str) -> InjectionVersion:
        """Return the current inputs of decide()."""
        manager = self.manager
        pod = manager.pod(pod_uid)
        known = ((name, n) for name, n in _requested(pod, container).items() if name in manager.resources)
        ours = ((name, n) for name, n in known if not manager.resources[name].is_attributed)
        held = manager.book.of
        return InjectionVersion(
            pod,
            tuple(self._delivered(pod_uid, container)),
            tuple(name for name, n in ours if (a := held(pod_uid, container, name)) is None or len(a.device_ids) < n),
            pod_uid in manager.book.releasing,
            self._pre_start(pod_uid, container),
            self._problem(pod_uid, container),
        )

    def _delivered(self, pod_uid: str, container: str) -> list[Allocation]:
        """Return the container's allocations that the agent delivers, without the kubelet's."""
        manager, found = self.manager, self.manager.book.of_container(pod_uid, container)
        ours = (a for a in found if not manager.resources[a.resource_name].is_attributed)
        return [a for a in ours if a.delivery != DELIVERY_KUBELET or not self.is_kubelets(a)]

    def _problem(self, pod_uid: str, container: str) -> str:
        resources = self.manager.book.resources
        problems = (problem(a, resources[a.resource_name]) for a in self._delivered(pod_uid, container))
        return next((found for found in problems if found), "")

    def decide(self, sandbox: Sandbox, container: str, env: Sequence[str] = ()) -> Decision:
        """Return None if the container requests no devices of the agent. container: its name. env: its own variables."""
        pod = self.manager.pod(sandbox.uid)
        if pod is not None and not pod.device_requests and not pod.unread:
            return None
        version = self.version(sandbox.uid, container)
        if pod is not None and version.missing:
            return self._missing(pod, container, version.missing[0])
        if version.allocations:
            return _refusal(container, version, self.manager.allocate_once) or self._grant(
                sandbox, container, version, env
            )
        if self.manager.book.of_container(sandbox.uid, container):
            return None
        if pod is not None and pod.unread:
            return Refusal(
                f"the requests of pod {pod.namespace}/{pod.name} for devices are not known: {pod.unread}; {_REMEDY}"
            )
        return self._unknown_pod(sandbox, container) if pod is None else self._unknown_resource(pod, sandbox, container)

    def _grant(
        self, sandbox: Sandbox, container: str, version: InjectionVersion, env: Sequence[str]
    ) -> Grant | Refusal:
        """Merge the responses into a grant. Until the API has listed the pod, only env has settings of its own."""
        own = NO_SETTINGS if version.pod is None else version.pod.container_settings(container)
        concerned = [*self.hooks.concerned(version.allocations)]
        responses: dict[str, ContainerEdits] = {}
        omitted: list[str] = []
        try:
            for a in version.allocations:
                assert a.edits is not None
                names: Collection[str] = own.envs
                for hooked in self.hooks.all:
                    if self.hooks.serves(hooked, a.resource_name) or hooked.overrules(sandbox, a.edits):
                        names = [name for name in names if not hooked.decides(name)]
                if not own.is_whole and (doubt := _doubtful(a.edits, names, [hook for hook, _ in concerned])):
                    return Refusal(_too_many_settings(container, doubt))
                responses[a.resource_name], words = without(a.edits, names, own.paths)
                omitted += words
            for hook, of_hook in concerned:
                joined = hook.joined(container, [self.hooks.response(a) for a in of_hook])
                responses |= _with_one_answer(responses, of_hook, hook, joined)
            edits, conflicts = merged(responses)
            if conflicts:
                return _conflict(container, conflicts[0])
            overruled = [hook.for_holder(container, env, edits) for hook, _ in concerned]
        except CreationRefused as error:
            return Refusal(str(error))
        except HookFailed as error:
            return Refusal(f"container {container} cannot start: {error}")
        if own.is_privileged:
            edits = unrestricted(edits)
        marks = sorted(fingerprints(version.allocations).items())
        mark = ",".join(f"{name}={fingerprint}" for name, fingerprint in marks)
        envs = dict(edits.envs)
        for creation in overruled:
            envs |= creation.envs or {}
        edits = replace(edits, envs=envs, annotations={**edits.annotations, CONTAINER_DEVICES_ANNOTATION: mark})
        replaced = tuple(creation for creation in overruled if creation.names)
        return Grant(edits, version, tuple(dict.fromkeys(omitted)), replaced)

    def _pre_start(self, pod_uid: str, container: str) -> PendingPreStart | None:
        """Return the call that must succeed before this container may start, or None."""
        pre_starts = self.manager.pre_starts
        if not pre_starts.required and not pre_starts.undecided:
            return None
        for a in self.manager.book.sharers(pod_uid, container):
            # other containers' calls only matter while in flight: the plugin may be resetting a shared device
            if a.container == container or pre_starts.is_in_flight(a.key):
                found = pre_starts.pending_call(a.key)
                if found is not None:
                    return found
        return None

    def _unknown_resource(self, pod: Pod, sandbox: Sandbox, container: str) -> Refusal | None:
        """Decide for a container without registered resources: they are this plugin's if its pod requires it and has no others."""
        if not self.asks_kubelet(sandbox, container):
            return None
        unknown = next((name for name in _requested(pod, container) if name not in self.of_kubelet), None)
        if unknown is None:
            return None
        message = f"no device plugin has registered {unknown} with the agent of this node yet"
        return Refusal(f"{message}, and {problem}" if (problem := self.kubelet_problem()) else message)

    def asks_kubelet(self, sandbox: Sandbox, container: str) -> bool:
        """Whether decide() depends on the kubelet's resources, which must be read before."""
        pod = self.manager.pod(sandbox.uid)
        requests = pod.device_requests if pod is not None else ()
        has_known = any(request.resource_name in self.manager.resources for request in requests)
        return bool(requests) and not has_known and requires_plugin(sandbox, container)

    def _unknown_pod(self, sandbox: Sandbox, container: str) -> Refusal | None:
        """Decide for a container without an allocation whose pod the API has not listed."""
        if sandbox.uid in self.manager.book.by_pod or not requires_plugin(sandbox, container):
            return None
        pod = f"pod {sandbox.namespace}/{sandbox.name}"
        if _has_uid_of_manifest(sandbox):
            return Refusal(
                f"static {pod} sets metadata.uid in its manifest, so the agent of this node cannot find it in the API: remove "
                "metadata.uid from the manifest, and the kubelet generates one that works"
            )
        return Refusal(f"the agent of this node has not received {pod} from the API server yet", is_temporary=True)

    def _missing(self, pod: Pod, container: str, resource_name: str) -> Refusal:
        has_some = self.manager.book.of(pod.uid, container, resource_name) is not None
        about = f"container {container} {'lacks devices of' if has_some else 'has no'} {resource_name} yet"
        if self.manager.is_recovering:
            return Refusal(f"{about}: allocations are being recovered from the API after the checkpoint was lost")
        if pod.is_terminating:
            return Refusal(f"{about}: pod {pod.namespace}/{pod.name} is terminating and gets no more devices")
        if pod.uid in self.manager.allocator.in_progress:
            return Refusal(f"{about}: its allocation is in progress", is_temporary=True)
        pending = self.manager.allocator.pending.get(pod.uid)
        if pending is None:
            return Refusal(f"{about}: it has not been allocated")
        return Refusal(f"{about}: {pending.message} ({pending.reason})")


def _requested(pod: Pod | None, container: str) -> dict[str, int]:
    """Return how many devices a container requests by resource name."""
    requests = () if pod is None else pod.device_requests
    return {request.resource_name: request.count for request in requests if request.container == container}


def _refusal(container: str, version: InjectionVersion, once: AllocateOnce) -> Refusal | None:
    """Refuse a fully allocated container that cannot start yet; None if it can."""
    if version.is_releasing:
        return Refusal(f"the pod of container {container} is over, and its devices are being released")
    pending = version.pre_start
    if pending is not None:
        about = f"{pending.resource_name} is not prepared for container {container} (PreStartContainer)"
        reason = pending.failure or "its device plugin has not responded yet"
        return Refusal(f"{about}: {reason}", is_temporary=pending.is_in_flight)
    for a in version.allocations:
        if a.response is None:
            if lost := once.lost_response(a):
                return Refusal(f"container {container} cannot start again: {lost}")
            return Refusal(
                f"the response of the device plugin of {a.resource_name} for container {container} was lost with the checkpoint "
                "or is outdated, and Allocate has not responded again yet"
                + (f": {version.problem}" if version.problem else ""),
                is_temporary=True,
            )
    if version.problem:
        # the agent may have just started, or the device may have just been connected
        return Refusal(f"container {container} cannot start: {version.problem}", is_temporary=True)
    for a in version.allocations:
        if a.edits is None:
            return Refusal(f"the device plugin's response for container {container} is invalid: {a.response_problem}")
    return None


def _with_one_answer(
    responses: Mapping[str, ContainerEdits],
    allocations: Sequence[Allocation],
    hook: Hooked,
    envs: Mapping[str, str],
) -> dict[str, ContainerEdits]:
    """Return the responses of a hook's plugin, with the joined variables in the first one."""
    found: dict[str, ContainerEdits] = {}
    for a in allocations:
        edits = responses[a.resource_name]
        rest = {name: value for name, value in edits.envs.items() if not hook.decides(name)}
        found[a.resource_name] = replace(edits, envs=rest if found else {**rest, **envs})
    return found


def _doubtful(edits: ContainerEdits, names: Collection[str], hooks: Sequence[Hooked]) -> str:
    """Return a variable or mount of a response that the pod may set itself; empty if all are certain."""
    doubtful = (name for name in edits.envs if name not in names)
    found = next((name for name in doubtful if not any(hook.decides(name) for hook in hooks)), "")
    return f"variable {found}" if found else f"mount {edits.mounts[0].container_path}" if edits.mounts else ""


def _too_many_settings(container: str, doubtful: str) -> str:
    return (
        f"container {container} sets more environment variables and volume mounts than the agent keeps, so it cannot know whether "
        f"{doubtful} of the device plugin is among them: set at most {MAX_SETTINGS} in all its pod's containers with devices"
    )


def _conflict(container: str, conflict: EditConflict) -> Refusal:
    return Refusal(
        f"the device plugins of {conflict.used} and {conflict.passed_over} set {conflict.what} {conflict.name} of container "
        f"{container} differently; fix one of them, or request the two resources in different containers"
    )


def _has_uid_of_manifest(sandbox: Sandbox) -> bool:
    """Whether the author of a static pod chose its UID: the agent cannot match it with its mirror pod in the API."""
    return sandbox.annotations.get(CONFIG_HASH) == sandbox.uid and not is_config_hash(sandbox.uid)


def requires_plugin(sandbox: Sandbox, container: str) -> bool:
    """Whether the runtime requires this plugin to create the container; the most specific annotation counts."""
    key = REQUIRED_PLUGINS_ANNOTATION
    for annotation in (f"{key}/container.{container}", f"{key}/pod", key):
        value = sandbox.annotations.get(annotation)
        if value is not None:
            return NRI_PLUGIN in _NOT_IN_NAMES.split(value)
    return False


# -- marks ----------------------------------------------------------------------------------------------------------------


def fingerprints(allocations: Iterable[Allocation]) -> dict[str, str]:
    """Return a fingerprint of the devices by resource name."""
    digests = ((a.resource_name, hashlib.sha256("\0".join(a.device_ids).encode()).hexdigest()) for a in allocations)
    return {name: digest[:_FINGERPRINT_DIGITS] for name, digest in digests}


def marks_of(container: RunningContainer) -> dict[str, str]:
    """Return the fingerprints in a container's mark by resource name; empty without a mark."""
    text = container.annotations.get(CONTAINER_DEVICES_ANNOTATION, "")
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: fingerprint for name, _, fingerprint in pairs}


def shows_edits(shown: ShownSettings, edits: ContainerEdits) -> bool:
    """Whether a container without a mark has these edits from another allocator, such as the kubelet before --delivery nri.

    Edits that the runtime does not show (mounts, CDI devices) prove nothing.
    """
    paths = {device.container_path for device in edits.devices}
    return bool(edits.envs or paths) and shown.may_have(edits.envs, paths)
