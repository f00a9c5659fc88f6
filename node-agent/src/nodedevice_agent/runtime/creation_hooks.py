"""The hooks of built-in plugins in CreateContainer, and the allocations that each of them is about. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.plugins.contract import CreationHook, Response


class Hooked(Struct, frozen=True):
    """A hook, and whether resources of a scope are its plugin's."""

    kind: str
    hook: CreationHook
    is_scope: Callable[[str], bool]


class CreationHooks:
    """For the containers of one node. all: those of plugins that are configured, or that have resources."""

    def __init__(self, manager: DeviceManager, hooks: Iterable[Hooked] = ()) -> None:
        self._manager = manager
        self.all = [*hooks]

    def serves(self, hooked: Hooked, resource_name: str) -> bool:
        """Whether the hook's plugin does, by whatever name: known from the sockets of this process, or from its checkpoint."""
        resource = self._manager.resources.get(resource_name)
        return resource is not None and hooked.is_scope(resource.scope)

    def own(self, hooked: Hooked, allocations: Iterable[Allocation]) -> list[Allocation]:
        """Those of the hook's plugin."""
        return [a for a in allocations if self.serves(hooked, a.resource_name)]

    def concerned(self, allocations: Collection[Allocation]) -> Iterator[tuple[CreationHook, list[Allocation]]]:
        """Each hook whose plugin has some of these."""
        pairs = ((hooked.hook, self.own(hooked, allocations)) for hooked in self.all)
        return ((hook, own) for hook, own in pairs if own)

    def holds(self, hooked: Hooked, pod_uid: str, container: str) -> bool:
        """Whether a container has a device of the hook's plugin."""
        return bool(self.own(hooked, self._manager.book.of_container(pod_uid, container)))

    def response(self, allocation: Allocation) -> Response:
        """Of a plugin that has listed."""
        resource = self._manager.resources[allocation.resource_name]
        devices = {resource.parent_of(device_id): device_id for device_id in allocation.device_ids}
        attributes = [(parent, dict(_attributes(resource, device_id))) for parent, device_id in devices.items()]
        envs = allocation.edits.envs if allocation.edits is not None else {}
        return Response(allocation.resource_name, envs, attributes)


def _attributes(resource: Resource, device_id: str) -> Iterable[tuple[str, str]]:
    """Of a physical device, as listed now."""
    details = resource.listed.parents.get(resource.parent_of(device_id)) or resource.reported(device_id)
    return details.attributes if details is not None else ()
