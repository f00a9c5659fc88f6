"""What the plugins of the made-up host offer, and the pods that could have it and do not. Of its agent and its hardware alone."""

from collections.abc import Iterator

from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.resource import Resource

from tests.robustness.host.agent import BuiltInPlugin
from tests.robustness.host.hardware import FUSE, Node
from tests.robustness.host.referee.records import Offer
from tests.robustness.host.world import World


def offers_of(world: World) -> list[Offer]:
    """All devices that connected plugins list and no pod holds."""
    manager = world.running_agent.manager
    found: list[Offer] = []
    for name, plugin in sorted(world.running_agent.plugins.items()):
        resource, config = manager.resources[name], world.config.find(name)
        if not resource.is_live or config is None:
            continue
        free = set(availability.free(resource))
        for listed_id in resource.listed.ids:
            if listed_id not in resource.use.holders:
                nodes = nodes_of(world, plugin, resource, listed_id)
                offer = Offer(
                    name,
                    listed_id,
                    nodes,
                    config.is_for_several,
                    listed_id in free,
                    listed_id in resource.use.held_back,
                )
                found.append(offer)
    return found


def nodes_of(world: World, plugin: BuiltInPlugin, resource: Resource, listed_id: str) -> tuple[Node, ...]:
    """Device files that a container would get with that ID now, without what all may use."""
    made = {device.id: device for device in plugin.source.devices.latest}
    device = resource.devices[listed_id]
    own = next((i for i in (device.listed_as, listed_id, *device.aliases) if i in made), None)
    if own is None:
        # damped, and not there
        return ()
    if own in plugin.source.devices.unconfirmed:
        # its plugin gives nothing for it
        return ()
    paths = [node.host_path for node in plugin.source.allocate([own], None).device_nodes]
    nodes = [world.host.node(path) for path in paths if path != FUSE]
    return tuple(node for node in nodes if node is not None)


def waiting_for_free(world: World) -> Iterator[tuple[str, dict[str, int]]]:
    """UIDs of pods that wait although all that they lack is free, each with how many it lacks by resource."""
    manager = world.running_agent.manager
    for pod in world.pods.values():
        lacks: dict[str, int] = {}
        for request in pod.device_requests:
            if manager.book.of(pod.uid, request.container, request.resource_name) is None:
                lacks[request.resource_name] = lacks.get(request.resource_name, 0) + request.count
        known = all(name in manager.resources for name in lacks)
        free_now = {name: len(availability.free(manager.resources[name])) for name in lacks} if known else {}
        if lacks and known and all(free_now[name] >= n for name, n in lacks.items()):
            yield pod.uid, lacks
