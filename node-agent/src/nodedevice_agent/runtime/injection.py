"""What a container is given when it is created, decided from the state of the device manager.

A container gets all its devices, or is refused with a message that gives the reason; the kubelet then retries. Nothing here waits
or calls anybody: a device that is not allocated yet is a reason to refuse. The pods that ask for devices are known from the API,
from their allocations (after a restart, with the API server unreachable), or from the annotation that makes the runtime require
this plugin. Only reads; container_events changes state when the container is created.
The pod's own settings win, as in the kubelet, which applies them after the plugins' responses; but for variables that the hook of a
built-in plugin decides (creation_hooks).

A grant is marked: the runtime keeps an annotation with a fingerprint of the container's devices, by which the container is
recognized after a restart. It is an annotation of the container, not of the pod, so the pod's author cannot set it.
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
from nodedevice_agent.devicemanager.allocation.answers import problem
from nodedevice_agent.devicemanager.allocation.held_calls import PendingPreStart
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, EditConflict, merged, unrestricted, without
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import MAX_SETTINGS, NO_SETTINGS, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox, ShownSettings
from nodedevice_agent.devicemanager.static_pods import CONFIG_HASH, is_config_hash
from nodedevice_agent.plugins.contract import Creation, CreationHook, CreationRefused, HookFailed
from nodedevice_agent.runtime.creation_hooks import CreationHooks

# a YAML list of plugin names; YAML separates them by characters that no name has
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_FINGERPRINT_DIGITS = 12
_REMEDY = "split it into smaller pods"


class InjectionVersion(Struct, frozen=True):
    """Everything that a grant rests on: it is valid as long as this stays equal.

    pod: None until the API has shown it. missing: resources that the container asks for and was not allocated. pre_start: the
    call of PreStartContainer that has to be answered first. problem: why a response is not, or no longer, right for its devices.
    A held device that breaks, is cordoned, or that somebody else's plugin no longer lists changes nothing: its container keeps it.
    """

    pod: Pod | None
    allocations: tuple[Allocation, ...]
    missing: tuple[str, ...]
    is_releasing: bool
    pre_start: PendingPreStart | None
    problem: str = ""


class Grant(Struct, frozen=True):
    """What a container is created with, once the version's allocations are on disk and while the version is current.

    omitted: parts of the plugins' responses that the pod's own settings replace, as words. overruled: by hooks of built-in plugins
    that replace the container's own variables.
    """

    edits: ContainerEdits
    version: InjectionVersion
    omitted: tuple[str, ...] = ()
    overruled: tuple[Creation, ...] = ()


class Refusal(Struct, frozen=True):
    """message: for the pod's Event. is_temporary: something is in progress that may end it within moments."""

    message: str
    is_temporary: bool = False


Decision = Grant | Refusal | None


class Injection:
    """of_kubelet: resources of the kubelet's own device manager on this node, which injects them itself; kubelet_problem: why they
    are not known, empty while they are. hooks: of built-in plugins. is_kubelets: whether the kubelet delivers an allocation, as it
    has done so far.
    """

    def __init__(
        self,
        manager: DeviceManager,
        of_kubelet: Container[str],
        kubelet_problem: Callable[[], str] = str,
        hooks: CreationHooks | None = None,
        is_kubelets: Callable[[Allocation], bool] = lambda allocation: False,
    ) -> None:
        self._is_kubelets = is_kubelets
        self._kubelet_problem = kubelet_problem
        self._manager = manager
        self._of_kubelet = of_kubelet
        self._hooks = hooks or CreationHooks(manager)

    def version(self, pod_uid: str, container: str) -> InjectionVersion:
        """What decide() rests on now."""
        manager = self._manager
        pod = manager.pod(pod_uid)
        known = (name for name in _requested(pod, container) if name in manager.resources)
        known = (name for name in known if not manager.resources[name].is_attributed)
        return InjectionVersion(
            pod,
            tuple(self._delivered(pod_uid, container)),
            tuple(name for name in known if manager.book.of(pod_uid, container, name) is None),
            pod_uid in manager.book.releasing,
            self._pre_start(pod_uid, container),
            self._problem(pod_uid, container),
        )

    def _delivered(self, pod_uid: str, container: str) -> list[Allocation]:
        """From here: not those that the kubelet delivers."""
        manager, found = self._manager, self._manager.book.of_container(pod_uid, container)
        ours = (a for a in found if not manager.resources[a.resource_name].is_attributed)
        return [a for a in ours if a.delivery != DELIVERY_KUBELET or not self._is_kubelets(a)]

    def _problem(self, pod_uid: str, container: str) -> str:
        resources = self._manager.book.resources
        problems = (problem(a, resources[a.resource_name]) for a in self._delivered(pod_uid, container))
        return next((found for found in problems if found), "")

    def decide(self, sandbox: Sandbox, container: str, env: Sequence[str] = ()) -> Decision:
        """container: its name. env: its own, as the runtime shows it. None: it asks for nothing that is given out here."""
        pod = self._manager.pod(sandbox.uid)
        if pod is not None and not pod.device_requests and not pod.unread:
            return None
        version = self.version(sandbox.uid, container)
        if pod is not None and version.missing:
            return self._missing(pod, container, version.missing[0])
        if version.allocations:
            return _refusal(container, version, self._manager.allocate_once) or self._grant(
                sandbox, container, version, env
            )
        if self._manager.book.of_container(sandbox.uid, container):
            return None
        if pod is not None and pod.unread:
            return Refusal(
                f"the requests of pod {pod.namespace}/{pod.name} for devices are not known: {pod.unread}; {_REMEDY}"
            )
        return self._unknown_pod(sandbox, container) if pod is None else self._unknown_resource(pod, sandbox, container)

    def _grant(
        self, sandbox: Sandbox, container: str, version: InjectionVersion, env: Sequence[str]
    ) -> Grant | Refusal:
        """The own settings of a pod that the API has not shown are unknown; those that hooks decide on are in env."""
        own = NO_SETTINGS if version.pod is None else version.pod.container_settings(container)
        concerned = [*self._hooks.concerned(version.allocations)]
        responses: dict[str, ContainerEdits] = {}
        omitted: list[str] = []
        try:
            for a in version.allocations:
                assert a.edits is not None
                names: Collection[str] = own.envs
                for hooked in self._hooks.all:
                    if self._hooks.serves(hooked, a.resource_name) or hooked.overrules(sandbox, a.edits):
                        names = [name for name in names if not hooked.hook.decides(name)]
                if not own.is_whole and (doubt := _doubtful(a.edits, names, [hook for hook, _ in concerned])):
                    return Refusal(_too_many_settings(container, doubt))
                responses[a.resource_name], words = without(a.edits, names, own.paths)
                omitted += words
            for hook, of_hook in concerned:
                joined = hook.joined(container, [self._hooks.response(a) for a in of_hook])
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
        """The call that has to be answered before this container may start; None where there is none."""
        pre_starts = self._manager.pre_starts
        if not pre_starts.required and not pre_starts.undecided:
            return None
        for a in self._manager.book.sharers(pod_uid, container):
            # another's call matters only while it is in flight: the plugin may be resetting a device that both use
            if a.container == container or pre_starts.is_in_flight(a.key):
                found = pre_starts.pending_call(a.key)
                if found is not None:
                    return found
        return None

    def _unknown_resource(self, pod: Pod, sandbox: Sandbox, container: str) -> Refusal | None:
        """The container requests nothing that is registered here.

        If the pod requires this plugin and has no other resource that is registered here, it must be one of these. If it has one,
        these may well be another plugin's.
        """
        if not self.asks_kubelet(sandbox, container):
            return None
        unknown = next((name for name in _requested(pod, container) if name not in self._of_kubelet), None)
        if unknown is None:
            return None
        message = f"no device plugin has registered {unknown} with the agent of this node yet"
        return Refusal(f"{message}, and {problem}" if (problem := self._kubelet_problem()) else message)

    def asks_kubelet(self, sandbox: Sandbox, container: str) -> bool:
        """Whether decide() depends on what the kubelet serves, which is to be read before."""
        pod = self._manager.pod(sandbox.uid)
        requests = pod.device_requests if pod is not None else ()
        has_known = any(request.resource_name in self._manager.resources for request in requests)
        return bool(requests) and not has_known and requires_plugin(sandbox, container)

    def _unknown_pod(self, sandbox: Sandbox, container: str) -> Refusal | None:
        """The API has not shown the pod, and the container has no allocation."""
        if sandbox.uid in self._manager.book.by_pod or not requires_plugin(sandbox, container):
            return None
        pod = f"pod {sandbox.namespace}/{sandbox.name}"
        if _has_uid_of_manifest(sandbox):
            return Refusal(
                f"static {pod} sets metadata.uid in its manifest, so the agent of this node cannot find it in the API: remove "
                "metadata.uid from the manifest, and the kubelet generates one that works"
            )
        return Refusal(f"the agent of this node has not received {pod} from the API server yet", is_temporary=True)

    def _missing(self, pod: Pod, container: str, resource_name: str) -> Refusal:
        about = f"container {container} has no {resource_name} yet"
        if self._manager.is_recovering:
            return Refusal(f"{about}: allocations are being recovered from the API after the checkpoint was lost")
        if pod.is_terminating:
            return Refusal(f"{about}: pod {pod.namespace}/{pod.name} is terminating and gets no more devices")
        if pod.uid in self._manager.allocator.in_progress:
            return Refusal(f"{about}: its allocation is in progress", is_temporary=True)
        pending = self._manager.allocator.pending.get(pod.uid)
        if pending is None:
            return Refusal(f"{about}: it has not been allocated")
        return Refusal(f"{about}: {pending.message} ({pending.reason})")


def _requested(pod: Pod | None, container: str) -> list[str]:
    """Names of the resources that a container asks for."""
    requests = () if pod is None else pod.device_requests
    return [request.resource_name for request in requests if request.container == container]


def _refusal(container: str, version: InjectionVersion, once: AllocateOnce) -> Refusal | None:
    """For a container with allocations and none missing."""
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
                "or is outdated, and Allocate has not been answered again yet"
                + (f": {version.problem}" if version.problem else ""),
                is_temporary=True,
            )
    if version.problem:
        # the agent may just have started, or the device may just have been connected
        return Refusal(f"container {container} cannot start: {version.problem}", is_temporary=True)
    for a in version.allocations:
        if a.edits is None:
            return Refusal(f"the device plugin's response for container {container} is invalid: {a.response_problem}")
    return None


def _with_one_answer(
    responses: Mapping[str, ContainerEdits],
    allocations: Sequence[Allocation],
    hook: CreationHook,
    envs: Mapping[str, str],
) -> dict[str, ContainerEdits]:
    """Those of a hook's plugin, with the joined variables in the first one."""
    found: dict[str, ContainerEdits] = {}
    for a in allocations:
        edits = responses[a.resource_name]
        rest = {name: value for name, value in edits.envs.items() if not hook.decides(name)}
        found[a.resource_name] = replace(edits, envs=rest if found else {**rest, **envs})
    return found


def _doubtful(edits: ContainerEdits, names: Collection[str], hooks: Sequence[CreationHook]) -> str:
    """A variable or mount of a response of which it is not known whether the pod sets it itself; empty where there is none."""
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
    """A static pod whose author chose its UID, which may be any: its mirror pod in the API is not matched with it."""
    return sandbox.annotations.get(CONFIG_HASH) == sandbox.uid and not is_config_hash(sandbox.uid)


def requires_plugin(sandbox: Sandbox, container: str) -> bool:
    """Whether the runtime may create this container only with this plugin; the most specific annotation counts."""
    key = REQUIRED_PLUGINS_ANNOTATION
    for annotation in (f"{key}/container.{container}", f"{key}/pod", key):
        value = sandbox.annotations.get(annotation)
        if value is not None:
            return NRI_PLUGIN in _NOT_IN_NAMES.split(value)
    return False


# -- marks ----------------------------------------------------------------------------------------------------------------


def fingerprints(allocations: Iterable[Allocation]) -> dict[str, str]:
    """Resource name to a fingerprint of the devices."""
    digests = ((a.resource_name, hashlib.sha256("\0".join(a.device_ids).encode()).hexdigest()) for a in allocations)
    return {name: digest[:_FINGERPRINT_DIGITS] for name, digest in digests}


def marks_of(container: RunningContainer) -> dict[str, str]:
    """The fingerprints that a container of the runtime is marked with, by resource name; empty for one without a mark."""
    text = container.annotations.get(CONTAINER_DEVICES_ANNOTATION, "")
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: fingerprint for name, _, fingerprint in pairs}


def shows_edits(shown: ShownSettings, edits: ContainerEdits) -> bool:
    """Whether a container without a mark has these edits, as far as the runtime shows its settings.

    For containers that another allocator gave their devices, as the kubelet did before --delivery nri. Edits that the runtime does
    not show (mounts, CDI devices) prove nothing.
    """
    paths = {device.container_path for device in edits.devices}
    return bool(edits.envs or paths) and shown.may_have(edits.envs, paths)
