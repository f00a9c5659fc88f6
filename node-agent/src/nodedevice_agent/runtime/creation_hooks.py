"""The hooks of built-in plugins in CreateContainer, and the allocations that each of them is about. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.plugins.contract import CreationHook, Response


class Hooked(Struct, frozen=True):
    """A hook of a kind of plugin, and whether resources of a scope are the plugin's."""

    kind: str
    hook: CreationHook
    is_scope: Callable[[str | None], bool]


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
