"""What each pod of the made-up host holds, by what the hardware is: it is followed while names, numbers and offers change.

Raises Breach where a pod has lost what it holds, or is given what another one has.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.lib.deviceplugin_server.values import device_id
from nodedevice_api.parts import parent_and_number

from tests.robustness.host.hardware import FUSE, Node, is_same
from tests.robustness.host.referee import knowledge
from tests.robustness.host.referee.knowledge import is_as_it_was, is_known_by_more_than_number, possibly
from tests.robustness.host.referee.offers import nodes_of
from tests.robustness.host.referee.records import Given, Held, breach, goes_with_device
from tests.robustness.host.world import FOREIGN, World


class HeldDevices:
    """by_key: each allocation as it was first seen, and what has become of its devices since."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.by_key: dict[AllocationKey, Held] = {}
        # by number: what was on the host at the last check, as plugins may have listed it since
        self._before: dict[str, Node] = {}

    def agent_killed(self, saved: Iterable[AllocationKey]) -> None:
        """No container had what was not on disk."""
        kept = set(saved)
        self.by_key = {key: held for key, held in self.by_key.items() if key in kept}
        for held in self.by_key.values():
            # nor, perhaps, that it is not shared any more
            held.is_shared = held.was_shared

    def step_ended(self) -> None:
        self._before = dict(self._world.host.by_number)

    def others(self, pod_uid: str) -> Iterator[Held]:
        return (held for held in self.by_key.values() if held.allocation.pod_uid != pod_uid)

    def certainly(self, held: Held) -> Iterator[Node]:
        """Device files that are, beyond doubt, what this allocation has."""
        resource = self._world.running_agent.manager.resources[held.allocation.resource_name]
        is_listed = are_listed(resource, held.allocation.device_ids)
        for given in held.files:
            if given.is_certain and (is_listed or is_known_by_more_than_number(self._world.host, given)):
                found = knowledge.certainly(self._world.host, given)
                # A name may have passed to another device, and that is what the pod has then. An answer that no container has got,
                # and whose devices have other files by now, is asked for again before one starts.
                is_current = is_listed and self._runs(held.allocation.key)
                yield from (node for node in found if is_current or not held.last_units or node.unit in held.last_units)

    def may_have(self, held: Held, node: Node) -> bool:
        by_number = self._world.host.by_number
        seen = [by_number[number] for number in held.numbers if number in by_number]
        return any(possibly(self._world.host, given, node) for given in held.files) or any(
            is_same(one, node) for one in seen
        )

    def check(self) -> int:
        """After a step. Returns how many allocations there are. Raises Breach."""
        book = {allocation.key: allocation for allocation in self._world.running_agent.manager.book}
        running = {instance.pod_uid for instance in self._world.instances.values()}
        # a list of this step may have come after what was allocated in it
        were_shared = {key for key, held in self.by_key.items() if held.is_shared}
        for key, held in list(self.by_key.items()):
            if key not in book:
                if key[0] in self._world.pods:
                    breach("lost", f"pod {key[0]} lives and has lost {held.allocation.device_ids} of {key[2]}")
                if key[0] in running and self._runs(key):
                    breach("lost", f"a container of {key[0]} runs and has lost {held.allocation.device_ids}")
                del self.by_key[key]
            elif book[key].device_ids != held.allocation.device_ids:
                ids = held.allocation.device_ids, book[key].device_ids
                breach("lost", f"the IDs of {key[0]} in {key[2]} have changed from {ids[0]} to {ids[1]}")
        for key, allocation in book.items():
            if key in self.by_key and self.by_key[key].files:
                self._follow_answer(self.by_key[key], allocation)
                self._follow_sharing(self.by_key[key])
                self._follow_places(self.by_key[key])
            else:
                is_new = key not in self.by_key
                self.by_key[key] = self._new(allocation)
                if is_new:
                    self._check_not_held(self.by_key[key], were_shared)
        return len(book)

    def _runs(self, key: AllocationKey) -> bool:
        instances = self._world.instances.values()
        return any((i.pod_uid, i.shown.name) == key[:2] and i.files for i in instances)

    def _new(self, allocation: Allocation) -> Held:
        config = self._world.config.find(allocation.resource_name)
        # the devices of a plugin that is not built in are its own matter
        is_shared = allocation.resource_name == FOREIGN or (config is not None and config.is_for_several)
        edits = allocation.edits
        resource = self._world.running_agent.manager.resources[allocation.resource_name]
        # one that left in just that step may be allocated by the list before; what it was is seen when it is back
        is_listed = are_listed(resource, allocation.device_ids)
        files = [self._given(allocation, d.host_path) for d in (edits.devices if edits and is_listed else ())]
        return Held(allocation, tuple(file for file in files if file is not None), is_shared, is_shared)

    def _given(self, allocation: Allocation, path: str) -> Given | None:
        node = self._world.host.node(path)
        if node is None or path == FUSE:
            return None
        is_late = allocation.key in self.by_key
        parts = (parent_and_number(device_id) for device_id in allocation.device_ids)
        bases = {part[0] for part in parts if part is not None} | {*allocation.device_ids}
        stick = node.stick
        own_ids = {f"usb-port-{stick.port}", "-".join(stick.identity)} if stick is not None else set()
        # of a resource that has other groups, too, the ID says whose file it is
        is_of_stick = bool(own_ids & bases) and device_id(path) not in bases
        is_named = self._is_named_after_file(allocation, bases) and not is_of_stick
        by_path = allocation.resource_name == FOREIGN or is_named
        # a link by serial goes with its device, unless two have that serial, or none
        is_own = stick is not None and bool(stick.identity[2]) and stick.identity not in self._world.host.repeated
        is_by_serial = "/by-id/" in path and is_own
        is_certain = not by_path or is_by_serial or not (is_late or "/by-id/" in path or self._has_passed(node))
        if stick is None:
            return Given(path, node, by_path, self._world.host.boots, is_certain=is_certain)
        config = self._world.config.find(allocation.resource_name)
        by_port = (config is not None and config.is_by_port) or f"usb-port-{stick.port}" in bases
        return Given(path, node, by_path, self._world.host.boots, stick.port, stick.identity, by_port, is_certain)

    def _has_passed(self, node: Node) -> bool:
        """Whether its number was another device's at the last check, which a plugin may have had in its list until now."""
        before = self._before.get(node.number)
        return before is not None and (before.unit, before.stick) != (node.unit, node.stick)

    def _is_named_after_file(self, allocation: Allocation, bases: set[str]) -> bool:
        edits = allocation.edits
        assert edits is not None
        return any(device_id(file.host_path) in bases for file in edits.devices)

    def _check_not_held(self, new: Held, were_shared: set[AllocationKey]) -> None:
        """Just now it was given what another pod has."""
        if new.allocation.resource_name == FOREIGN:
            return
        for given in (file for file in new.files if file.is_certain):
            for other in self.others(new.allocation.pod_uid):
                if other.allocation.resource_name == FOREIGN:
                    # known when its container runs
                    continue
                is_other_shared = other.is_shared or other.allocation.key in were_shared
                for node in self.certainly(other):
                    if is_same(node, given.node) and not (new.is_shared and is_other_shared):
                        breach(
                            "allocated twice",
                            f"{new.allocation.pod_uid} gets {given.path} ({given.node.number}) of {new.allocation.resource_name} "
                            f"{new.allocation.device_ids}, and {other.allocation.pod_uid} has {node.path} ({node.number}) of "
                            f"{other.allocation.resource_name} {other.allocation.device_ids}",
                        )

    def _follow_answer(self, held: Held, allocation: Allocation) -> None:
        """After an edit a device may have fewer files, and the plugin was asked for it again."""
        named = {device.host_path for device in allocation.edits.devices} if allocation.edits is not None else set()
        found = (self._world.host.node(path) for path in named)
        # a device that another group lists by now has its files by other paths
        units = {node.unit for node in found if node is not None}
        still = [given for given in held.files if given.path in named or given.node.unit in units]
        if still:
            sticks = [given.stick for given in still if given.stick is not None]
            gone = [g for g in held.files if g.stick in sticks or is_as_it_was(self._world.host, g)]
            held.files = tuple(g for g in held.files if g in still or g not in gone)

    def _follow_sharing(self, held: Held) -> None:
        """Offers that are listed under all held IDs say whether it is for several by now."""
        name = held.allocation.resource_name
        config, resource = self._world.config.find(name), self._world.running_agent.manager.resources[name]
        if config is not None and are_listed(resource, held.allocation.device_ids):
            held.is_shared = config.is_for_several
            held.was_shared = held.was_shared or held.is_shared

    def _follow_places(self, held: Held) -> None:
        plugin = self._world.running_agent.plugins.get(held.allocation.resource_name)
        resource = self._world.running_agent.manager.resources[held.allocation.resource_name]
        listed = [i for i in held.allocation.device_ids if plugin is not None and i in resource.devices]
        nodes = (
            [node for i in listed for node in nodes_of(self._world, plugin, resource, i)] if plugin is not None else []
        )
        held.numbers |= {node.number for node in nodes}
        held.files = tuple(self._followed(held, given, nodes) for given in held.files)
        if nodes and are_listed(resource, held.allocation.device_ids):
            held.last_units = {node.unit for node in nodes}
        sticks = [node.stick for node in nodes] + [given.stick for given in held.files]
        held.ports |= {stick.port for stick in sticks if stick is not None and stick.port}

    def _followed(self, held: Held, given: Given, listed: list[Node]) -> Given:
        """What was given is not known any more once its plugin has listed another device by its path, or all by their ports."""
        is_passed = given.by_path and any(n.path == given.node.path and n.unit != given.node.unit for n in listed)
        config = self._world.config.find(held.allocation.resource_name)
        is_port_now = config is not None and config.is_by_port and not given.by_port
        is_lost = (is_passed and not goes_with_device(given)) or (is_port_now and bool(listed))
        return replace(given, is_certain=False) if is_lost else given


def are_listed(resource: Resource, device_ids: Iterable[str]) -> bool:
    """Whether the plugin has found them all, and knows that it has."""
    return all((device := resource.reported(i)) is not None and not device.is_unconfirmed for i in device_ids)
