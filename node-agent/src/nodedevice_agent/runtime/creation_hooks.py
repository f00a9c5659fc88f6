"""The hooks of built-in plugins in CreateContainer, and the allocations that each of them is about. Pure.

A hook that raises an error concerns the containers that have, or may ask for, devices of its plugin. All others start.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins.contract import (
    Creation,
    CreationHook,
    CreationRefused,
    Given,
    HookFailed,
    Plugin,
    Response,
)

T = TypeVar("T")


class GuardedHook:
    """A CreationHook whose every error is a HookFailed, also that of making it.

    failed: called with each error that the hook raised.
    """

    def __init__(self, kind: str, make: Callable[[], CreationHook], failed: Callable[[str, Exception], None]) -> None:
        self._kind = kind
        self._failed = failed
        self._error: Exception | None = None
        try:
            self.hook = make()
        except Exception as exc:
            self._error = exc

    def reads(self, entry: str) -> bool:
        return self._called(lambda: self.hook.reads(entry))

    def decides(self, name: str) -> bool:
        return self._called(lambda: self.hook.decides(name))

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        return self._called(lambda: self.hook.overrules(pod, edits))

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        return self._called(lambda: self.hook.joined(container, responses))

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> Creation:
        return self._called(lambda: self.hook.for_holder(container, env, edits))

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: Given) -> Creation | None:
        return self._called(lambda: self.hook.for_any(pod, container, gets))

    def note(self, exempt_pods: Sequence[str]) -> str:
        return self._called(lambda: self.hook.note(exempt_pods))

    def _called(self, call: Callable[[], T]) -> T:
        """Raises CreationRefused, HookFailed."""
        try:
            if self._error is not None:
                raise self._error
            return call()
        except CreationRefused:
            raise
        except Exception as exc:
            self._failed(self._kind, exc)
            raise HookFailed(self._kind, exc) from exc


class Hooked(Struct, frozen=True):
    """A hook of a kind of plugin, and whether resources of a scope are the plugin's. settings: of that kind."""

    kind: str
    hook: CreationHook
    is_scope: Callable[[str | None], bool]
    settings: type[Plugin] = Plugin

    def reads(self, entry: str) -> bool:
        """Whether the variable NAME=value matters to the hook, or may matter where that failed."""
        try:
            return self.hook.reads(entry)
        except HookFailed:
            return entry.startswith(self.settings.asking_variables)

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        """Whether another plugin's response wins over the pod's variables. Raises HookFailed where it may name devices."""
        try:
            return self.hook.overrules(pod, edits)
        except HookFailed:
            if self._is_asked(edits.envs, edits.cdi_devices):
                raise
            return False

    def note(self, exempt_pods: Sequence[str]) -> str:
        """For the condition Injectable; empty where the hook fails, which its caller notes."""
        try:
            return self.hook.note(exempt_pods)
        except HookFailed:
            return ""

    def may_be_asked_by(self, pod: Sandbox, container: RunningContainer) -> bool:
        """Whether a container may ask for devices of the plugin, by what the runtime shows."""
        annotations = (*pod.annotations.items(), *container.annotations.items())
        devices = [device for key, value in annotations if "cdi.k8s.io" in key for device in value.split(",")]
        # one without a kind is of the runtime's default kind
        devices = [device if "/" in device else self.settings.asking_word for device in devices]
        return self._is_asked(container.env, (*devices, *container.null_mounts))

    def _is_asked(self, variables: Iterable[str], names: Iterable[str]) -> bool:
        beginnings, word = self.settings.asking_variables, self.settings.asking_word
        return any(each.startswith(beginnings) for each in variables) or any(word and word in each for each in names)


class CreationHooks:
    """For the containers of one node. all: those of plugins that are configured, or that have resources."""

    def __init__(self, manager: DeviceManager, hooks: Iterable[Hooked] = ()) -> None:
        self._manager = manager
        self.all = [*hooks]

    def serves(self, hooked: Hooked, resource_name: str) -> bool:
        """Whether the hook's plugin does, by whatever name: known from the sockets of this process, or from its checkpoint."""
        resource = self._manager.resources.get(resource_name)
        return resource is not None and hooked.is_scope(resource.presence.scope)

    def concerned(self, allocations: Collection[Allocation]) -> Iterator[tuple[CreationHook, list[Allocation]]]:
        """Each hook whose plugin has some of these, and which."""
        for hooked in self.all:
            if own := [a for a in allocations if self.serves(hooked, a.resource_name)]:
                yield hooked.hook, own

    def response(self, allocation: Allocation) -> Response:
        """Of a plugin that has listed."""
        resource = self._manager.resources[allocation.resource_name]
        parents = {resource.use.parent_of(device_id): device_id for device_id in allocation.device_ids}
        devices = []
        for parent, device_id in parents.items():
            details = resource.listed.parents.get(parent) or resource.reported(device_id)
            devices.append((parent, dict(details.attributes) if details is not None else {}))
        return Response(allocation.resource_name, allocation.edits.envs if allocation.edits else {}, devices)
