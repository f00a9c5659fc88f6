"""Calls the hooks of built-in plugins in CreateContainer, and finds the allocations of each hook. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins import contract

T = TypeVar("T")


class Hooked:
    """The hook of one kind of plugin. Converts its errors to HookFailed, including errors of its constructor.

    is_scope: whether a scope belongs to the plugin. settings: the settings class of the kind. failed: called with each error.
    """

    def __init__(
        self,
        kind: str,
        make: Callable[[], contract.CreationHook],
        is_scope: Callable[[str | None], bool],
        settings: type[contract.Plugin],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self.kind, self.is_scope = kind, is_scope
        self._settings = settings
        self._failed = failed
        self._error: Exception | None = None
        try:
            self.hook = make()
        except Exception as exc:
            self._error = exc

    def reads(self, entry: str) -> bool:
        """Whether the hook needs the variable NAME=value; if the hook fails, whether it may need it."""
        try:
            return self._called(lambda: self.hook.reads(entry))
        except contract.HookFailed:
            return entry.startswith(self._settings.asking_variables)

    def decides(self, name: str) -> bool:
        return self._called(lambda: self.hook.decides(name))

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        """Whether another plugin's response overrides the pod's variables. Raises HookFailed if the response may name devices."""
        try:
            return self._called(lambda: self.hook.overrules(pod, edits))
        except contract.HookFailed:
            if self._is_asked(edits.envs, edits.cdi_devices):
                raise
            return False

    def joined(self, container: str, responses: Sequence[contract.Response]) -> Mapping[str, str]:
        return self._called(lambda: self.hook.joined(container, responses))

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> contract.Creation:
        return self._called(lambda: self.hook.for_holder(container, env, edits))

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: contract.Given) -> contract.Creation | None:
        return self._called(lambda: self.hook.for_any(pod, container, gets))

    def note(self, exempt_pods: Sequence[str]) -> str:
        """Return the note for the condition Injectable; empty if the hook fails, which the caller reports."""
        try:
            return self._called(lambda: self.hook.note(exempt_pods))
        except contract.HookFailed:
            return ""

    def _called(self, call: Callable[[], T]) -> T:
        """Raises CreationRefused, HookFailed."""
        try:
            if self._error is not None:
                raise self._error
            return call()
        except contract.CreationRefused:
            raise
        except Exception as exc:
            self._failed(self.kind, exc)
            raise contract.HookFailed(self.kind, exc) from exc

    def may_be_asked_by(self, pod: Sandbox, container: RunningContainer) -> bool:
        """Whether a container may request the plugin's devices, according to its settings in the runtime."""
        annotations = (*pod.annotations.items(), *container.annotations.items())
        devices = [device for key, value in annotations if "cdi.k8s.io" in key for device in value.split(",")]
        # a device without a kind has the runtime's default kind
        devices = [device if "/" in device else self._settings.asking_word for device in devices]
        return self._is_asked(container.env, (*devices, *container.null_mounts))

    def _is_asked(self, variables: Iterable[str], names: Iterable[str]) -> bool:
        prefixes, word = self._settings.asking_variables, self._settings.asking_word
        return any(entry.startswith(prefixes) for entry in variables) or any(word and word in name for name in names)


class CreationHooks:
    """The hooks of one node. all: hooks of plugins that are configured or have resources."""

    def __init__(self, manager: DeviceManager, hooks: Iterable[Hooked] = ()) -> None:
        self._manager = manager
        self.all = [*hooks]

    def serves(self, hooked: Hooked, resource_name: str) -> bool:
        """Whether the hook's plugin serves the resource, according to this process's sockets or its checkpoint."""
        resource = self._manager.resources.get(resource_name)
        return resource is not None and hooked.is_scope(resource.presence.scope)

    def concerned(self, allocations: Collection[Allocation]) -> Iterator[tuple[Hooked, list[Allocation]]]:
        """Yield each hook whose plugin has some of the allocations, with these."""
        for hooked in self.all:
            if served := [a for a in allocations if self.serves(hooked, a.resource_name)]:
                yield hooked, served

    def response(self, allocation: Allocation) -> contract.Response:
        """Return the plugin's response to an allocation. The plugin must have listed its devices."""
        resource = self._manager.resources[allocation.resource_name]
        parents = {resource.use.parent_of(device_id): device_id for device_id in allocation.device_ids}
        devices = []
        for parent, device_id in parents.items():
            details = resource.listed.parents.get(parent) or resource.reported(device_id)
            devices.append((parent, dict(details.attributes) if details is not None else {}))
        return contract.Response(allocation.resource_name, allocation.edits.envs if allocation.edits else {}, devices)
