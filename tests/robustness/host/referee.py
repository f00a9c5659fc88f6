"""What must never happen on the made-up host, decided by what the hardware is and by the numbers in the containers alone.

Knows which stick is which; uses nothing of what the product says of its devices but their IDs and the files that it gives for them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice, device_id
from nodedevice_api.parts import parent_and_number

from tests.robustness.host.hardware import FUSE, Node, is_same
from tests.robustness.host.knowledge import certainly, is_as_it_was, is_known_by_more_than_number, may_be, possibly
from tests.robustness.host.offers import nodes_of, offers_of, waiting_for_free
from tests.robustness.host.records import Breach, Given, Held, Offer, clash, goes_with_device
from tests.robustness.host.waits import Wait
from tests.robustness.host.world import FOREIGN, Started, World


class Referee:
    """checks: how much was compared, by kind; without any nothing is shown. waits: how often each unavoidable wait was met."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.waits: Counter[Wait] = Counter()
        self._held: dict[AllocationKey, Held] = {}
        # by number: what was on the host at the last check, as plugins may have listed it since
        self._before: dict[str, Node] = {}
        self.checks = dict.fromkeys(("grants", "refusals", "offers", "held", "held back", "unconfirmed"), 0)

    # -- events -------------------------------------------------------------------------------------------------------------

    def agent_killed(self, saved: Iterable[AllocationKey]) -> None:
        """What was not on disk had been given to nobody."""
        kept = set(saved)
        self._held = {key: held for key, held in self._held.items() if key in kept}
        for held in self._held.values():
            # nor, perhaps, that it is not shared any more
            held.is_shared = held.was_shared

    def check(self) -> None:
        """After a step. Raises Breach."""
        if self._world.agent is None:
            return
        self._check_book()
        started, self._world.started = self._world.started, None
        if started is not None:
            self._check_started(started)
        self._check_offers()
        self._before = dict(self._world.host.by_number)

    def _report(self, kind: str, message: str) -> NoReturn:
        raise Breach(kind, message)

    # -- allocations ----------------------------------------------------------------------------------------------------------

    def _check_book(self) -> None:
        assert self._world.agent is not None
        book = {allocation.key: allocation for allocation in self._world.agent.manager.book}
        running = {instance.pod_uid for instance in self._world.instances.values()}
        # a list of this step may have come after what was allocated in it
        were_shared = {key for key, held in self._held.items() if held.is_shared}
        for key, held in list(self._held.items()):
            if key not in book:
                if key[0] in self._world.pods:
                    self._report("lost", f"pod {key[0]} lives and has lost {held.allocation.device_ids} of {key[2]}")
                if key[0] in running and self._runs(key):
                    self._report("lost", f"a container of {key[0]} runs and has lost {held.allocation.device_ids}")
                del self._held[key]
            elif book[key].device_ids != held.allocation.device_ids:
                ids = held.allocation.device_ids, book[key].device_ids
                self._report("lost", f"the IDs of {key[0]} in {key[2]} have changed from {ids[0]} to {ids[1]}")
        for key, allocation in book.items():
            if key in self._held and self._held[key].files:
                self._follow_answer(self._held[key], allocation)
                self._follow_sharing(self._held[key])
                self._follow_places(self._held[key])
            else:
                is_new = key not in self._held
                self._held[key] = self._new(allocation)
                if is_new:
                    self._check_not_held(self._held[key], were_shared)
        self.checks["held"] += len(book)

    def _runs(self, key: AllocationKey) -> bool:
        instances = self._world.instances.values()
        return any((i.pod_uid, i.shown.name) == key[:2] and i.files for i in instances)

    def _new(self, allocation: Allocation) -> Held:
        config = self._world.config.find(allocation.resource_name)
        # what somebody else's plugin does with its devices is its own matter
        is_shared = allocation.resource_name == FOREIGN or (config is not None and config.is_for_several)
        edits = allocation.edits
        assert self._world.agent is not None
        resource = self._world.agent.manager.resources[allocation.resource_name]
        # one that left in just that step may be allocated by the list before; what it was is seen when it is back
        is_listed = _are_listed(resource, allocation.device_ids)
        files = [self._given(allocation, d.host_path) for d in (edits.devices if edits and is_listed else ())]
        return Held(allocation, tuple(file for file in files if file is not None), is_shared, is_shared)

    def _given(self, allocation: Allocation, path: str) -> Given | None:
        node = self._world.host.node(path)
        if node is None or path == FUSE:
            return None
        is_late = allocation.key in self._held
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
            for other in self._others(new.allocation.pod_uid):
                if other.allocation.resource_name == FOREIGN:
                    # known when its container runs
                    continue
                is_other_shared = other.is_shared or other.allocation.key in were_shared
                for node in self._certainly(other):
                    if is_same(node, given.node) and not (new.is_shared and is_other_shared):
                        self._report(
                            "allocated twice",
                            f"{new.allocation.pod_uid} gets {given.path} ({given.node.number}) of {new.allocation.resource_name} "
                            f"{new.allocation.device_ids}, and {other.allocation.pod_uid} has {node.path} ({node.number}) of "
                            f"{other.allocation.resource_name} {other.allocation.device_ids}",
                        )

    def _others(self, pod_uid: str) -> Iterator[Held]:
        return (held for held in self._held.values() if held.allocation.pod_uid != pod_uid)

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
        assert self._world.agent is not None
        name = held.allocation.resource_name
        config, resource = self._world.config.find(name), self._world.agent.manager.resources[name]
        if config is not None and _are_listed(resource, held.allocation.device_ids):
            held.is_shared = config.is_for_several
            held.was_shared = held.was_shared or held.is_shared

    def _follow_places(self, held: Held) -> None:
        assert self._world.agent is not None
        plugin = self._world.agent.plugins.get(held.allocation.resource_name)
        resource = self._world.agent.manager.resources[held.allocation.resource_name]
        listed = [i for i in held.allocation.device_ids if plugin is not None and i in resource.devices]
        nodes = (
            [node for i in listed for node in nodes_of(self._world, plugin, resource, i)] if plugin is not None else []
        )
        held.numbers |= {node.number for node in nodes}
        held.files = tuple(self._followed(held, given, nodes) for given in held.files)
        if nodes and _are_listed(resource, held.allocation.device_ids):
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

    def _certainly(self, held: Held) -> Iterator[Node]:
        """Device files that are, beyond doubt, what this allocation has."""
        assert self._world.agent is not None
        resource = self._world.agent.manager.resources[held.allocation.resource_name]
        is_listed = _are_listed(resource, held.allocation.device_ids)
        for given in held.files:
            if given.is_certain and (is_listed or is_known_by_more_than_number(self._world.host, given)):
                found = certainly(self._world.host, given)
                # A name may have passed to another device, and that is what the pod has then. An answer that no container has got,
                # and whose devices have other files by now, is asked for again before one starts.
                is_current = is_listed and self._runs(held.allocation.key)
                yield from (node for node in found if is_current or not held.last_units or node.unit in held.last_units)

    # -- containers -----------------------------------------------------------------------------------------------------------

    def _check_started(self, started: Started) -> None:
        held = [self._held[a.key] for a in started.held if a.key in self._held]
        if started.refusal:
            self.checks["refusals"] += 1
            self._check_refusal(started, held)
            return
        self.checks["grants"] += 1
        for file in started.files:
            if file.resource_name != FOREIGN and file.path != FUSE:
                self._check_right_device(started, held, file.path, file.node)
        self._check_numbers(started, held)

    def _check_right_device(self, started: Started, held: list[Held], path: str, node: Node) -> None:
        given = [given for each in held for given in each.files]
        if not any(may_be(self._world.host, one, path, node) for one in given):
            had = ", ".join(f"{one.path} of {one.node.unit[0]} {one.identity} at {one.port}" for one in given)
            stick = node.stick
            now = f"{stick.identity} at {stick.port}" if stick is not None else ""
            self._report(
                "wrong device", f"{started.pod_uid} starts with {path} of {node.unit[0]} {now}, and was allocated {had}"
            )

    def _check_numbers(self, started: Started, held: list[Held]) -> None:
        """No other pod has a number of what this container opens."""
        shared = {each.allocation.resource_name: each.was_shared for each in held}
        by_number = self._world.host.by_number
        for instance in self._world.instances.values():
            if instance.pod_uid == started.pod_uid:
                continue
            for theirs in instance.files:
                node = by_number.get(theirs.node.number)
                for ours in started.files:
                    if node is None or ours.path == FUSE or theirs.path == FUSE or not is_same(node, ours.node):
                        continue
                    if FOREIGN in (ours.resource_name, theirs.resource_name) and ours.node.number != node.number:
                        # what somebody else's plugin gives is known by its number alone
                        continue
                    if shared.get(ours.resource_name) and self._shares(instance.pod_uid, theirs.resource_name, node):
                        continue
                    identity = node.stick.identity if node.stick is not None else ("", "", "")
                    is_passed = (node.unit, identity) != (theirs.node.unit, theirs.identity)
                    if is_passed and node.number != ours.node.number:
                        # nobody knows by a number that is in a container what else has become of its device
                        continue
                    self._report(
                        "number passed on" if is_passed else "two pods",
                        f"{started.pod_uid} starts with {ours.path} ({ours.node.number}, {ours.node.unit}), and "
                        f"{instance.pod_uid} runs with {theirs.path} ({theirs.node.number}, then {theirs.node.unit}, "
                        f"now {node.unit})",
                    )

    def _shares(self, pod_uid: str, resource_name: str, node: Node) -> bool:
        """Whether that pod has it as one of several: by this resource, or by another that leads to it by now."""
        held = [each for each in self._held.values() if each.allocation.pod_uid == pod_uid]
        if all(each.was_shared for each in held if each.allocation.resource_name == resource_name):
            return True
        return any(is_same(node, one) for each in held if each.was_shared for one in self._certainly(each))

    def _check_refusal(self, started: Started, held: list[Held]) -> None:
        """Where everything is as it was when it was allocated, a container starts."""
        wait = self._why_refused(started, held)
        if wait is None:
            self._report("refused", f"{started.pod_uid} has all its devices, and does not start: {started.refusal}")
        self.waits[wait] += 1

    def _why_refused(self, started: Started, held: list[Held]) -> Wait | None:
        agent = self._world.agent
        assert agent is not None
        if started.pod_uid in agent.manager.book.releasing:
            return Wait.ENDING
        if any(each.allocation.resource_name == FOREIGN for each in held):
            return Wait.FOREIGN
        pod = self._world.pods.get(started.pod_uid)
        wanted = {r.resource_name for r in pod.device_requests if r.container == started.container} if pod else set()
        if not held or wanted != {each.allocation.resource_name for each in held}:
            return Wait.CHANGED_REQUEST
        files = [file for each in held for file in each.files]
        if self._world.faults.are_all or any(file.stick is not None and file.stick.broken for file in files):
            return Wait.UNREAD
        if any(self._may_have(other, file.node) for other in self._others(started.pod_uid) for file in files):
            # what both were given as shared is not any more, or a card has joined what another pod has
            return Wait.HELD
        for each in held:
            name = each.allocation.resource_name
            resource = agent.manager.resources[name]
            is_served = name in agent.plugins or name in agent.foreign
            if not is_served or not _are_listed(resource, each.allocation.device_ids):
                return Wait.NOT_SERVED
            if not each.files:
                return Wait.LOST_ANSWER
            if not all(is_as_it_was(self._world.host, file) for file in each.files):
                return Wait.NOT_AS_IT_WAS
        return None

    # -- offers ---------------------------------------------------------------------------------------------------------------

    def _check_offers(self) -> None:
        """What is held is offered to nobody else, and nothing is offered twice."""
        offers = offers_of(self._world)
        self.checks["offers"] += len(offers)
        free = [offer for offer in offers if offer.is_free]
        held = [(node, each, each.is_shared) for each in self._held.values() for node in self._certainly(each)]
        for number, offer in enumerate(free):
            for node in offer.nodes:
                for other, each, is_shared in held:
                    if is_same(node, other) and not (offer.is_shared and is_shared):
                        if each.allocation.resource_name == FOREIGN:
                            continue
                        self._report(
                            "held and offered",
                            f"{offer} is free, and {each.allocation.pod_uid} holds {other.path} ({other.number}) of "
                            f"{each.allocation.resource_name} {each.allocation.device_ids}",
                        )
            for other_offer in free[number + 1 :]:
                if clash(offer, other_offer):
                    self._report("offered twice", f"{offer} and {other_offer} are free")
        for offer in offers:
            # one that is damped may have left
            if offer.is_held_back and offer.nodes:
                self._check_held_back(offer, offers)
        self._check_unconfirmed()

    def _check_unconfirmed(self) -> None:
        """A device whose files can be read is confirmed, whatever else cannot be read."""
        assert self._world.agent is not None
        for name, plugin in self._world.agent.plugins.items():
            for listed_id in plugin.source.devices.unconfirmed:
                device = next(device for device in plugin.source.devices.latest if device.id == listed_id)
                nodes = [self._world.host.node(path) for path, _ in device.files]
                self.checks["unconfirmed"] += 1
                if not nodes or any(node is None or not _is_listed_with(device, node) for node in nodes):
                    self.waits[Wait.MISSING] += 1
                elif any(node is not None and self._is_unread(node) for node in nodes):
                    self.waits[Wait.UNREAD] += 1
                else:
                    self._report("held back", f"{listed_id} of {name} is not confirmed, and can be read: {nodes}")

    def _check_held_back(self, offer: Offer, offers: list[Offer]) -> None:
        if any(clash(offer, other) for other in offers if other is not offer and not other.is_held_back):
            # it is offered under another name
            return
        self.checks["held back"] += 1
        wait = self._why_held_back(offer)
        if wait is None:
            self._report("held back", f"{offer} is held back, and nobody has it")
        self.waits[wait] += 1

    def _why_held_back(self, offer: Offer) -> Wait | None:
        assert self._world.agent is not None
        if any(resource.flap_damping.damped for resource in self._world.agent.manager.resources.values()):
            return Wait.FLAPPING
        if self._world.cordons:
            return Wait.CORDONED
        if not all(held.files for held in self._held.values()):
            return Wait.LOST_ANSWER
        if any(map(self._is_unread, offer.nodes)):
            return Wait.UNREAD
        for held in self._held.values():
            if any(possibly(self._world.host, given, node) for given in held.files for node in offer.nodes):
                return Wait.HELD
            if any(node.number in held.numbers for node in offer.nodes):
                return Wait.HELD
            if any(node.stick is not None and node.stick.port in held.ports for node in offer.nodes):
                return Wait.HELD
        numbers = {file.node.number for instance in self._world.instances.values() for file in instance.files}
        by_number = self._world.host.by_number
        stale = [by_number[number] for number in numbers if number in by_number]
        if any(is_same(one, node) for one in stale for node in offer.nodes):
            return Wait.IN_CONTAINER
        return None

    def _is_unread(self, node: Node) -> bool:
        """Whether a file of its stick cannot be read, or a name that it shares with another stick."""
        if self._world.faults.are_all:
            return True
        names = {f"{self._world.root}{path}" for path in (node.path, *node.names)}
        is_broken = node.stick is not None and bool(node.stick.broken)
        return is_broken or not names.isdisjoint(self._world.faults.paths)

    def _may_have(self, held: Held, node: Node) -> bool:
        by_number = self._world.host.by_number
        seen = [by_number[number] for number in held.numbers if number in by_number]
        return any(possibly(self._world.host, given, node) for given in held.files) or any(
            is_same(one, node) for one in seen
        )

    def check_idle(self) -> None:
        """No pod is there any more: each device that is not cordoned can be had, under one of its names."""
        assert self._world.agent is not None
        for name, resource in self._world.agent.manager.resources.items():
            if resource.use.holders or resource.use.reserved:
                self._report(
                    "hangs", f"no pod exists, and {name} has holders {resource.use.holders or resource.use.reserved}"
                )
        offers = offers_of(self._world)
        free = [offer for offer in offers if offer.is_free]
        for offer in offers:
            if offer.is_free or any(clash(offer, other) for other in free):
                continue
            if any(map(self._is_unread, offer.nodes)):
                self.waits[Wait.UNREAD] += 1
            else:
                self._report("hangs", f"nobody is there, and {offer} is not free")

    def check_waiting(self) -> None:
        """No pod waits for what is free."""
        for pod_uid, lacks in waiting_for_free(self._world):
            self._report("hangs", f"{pod_uid} waits for {lacks}, and these are free")


def _is_listed_with(device: PluginDevice, node: Node) -> bool:
    """Whether a device is listed as what this file leads to."""
    maker = "/usb/" + ":".join(node.stick.identity) if node.stick is not None else ""
    return node.sysfs in device.identity and any(token.startswith(maker) for token in device.identity)


def _are_listed(resource: Resource, device_ids: Iterable[str]) -> bool:
    """Whether the plugin has found them all, and knows that it has."""
    return all((device := resource.reported(i)) is not None and not device.is_unconfirmed for i in device_ids)
