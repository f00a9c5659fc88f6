"""Why a container of the made-up host does not start, and why an offer is held back; None where there is no reason. Reads only."""

from tests.robustness.host.hardware import Node, is_same
from tests.robustness.host.referee.held import HeldDevices, are_listed
from tests.robustness.host.referee.knowledge import is_as_it_was, possibly
from tests.robustness.host.referee.records import Held, Offer
from tests.robustness.host.referee.waits import Wait
from tests.robustness.host.world import FOREIGN, Started, World


def why_refused(world: World, devices: HeldDevices, started: Started, held: list[Held]) -> Wait | None:
    """Why a container does not start; None if it has all its devices. held: its allocations."""
    agent = world.running_agent
    if started.pod_uid in agent.manager.book.releasing:
        return Wait.ENDING
    if any(each.allocation.resource_name == FOREIGN for each in held):
        return Wait.FOREIGN
    pod = world.pods.get(started.pod_uid)
    wanted = {r.resource_name for r in pod.device_requests if r.container == started.container} if pod else set()
    if not held or wanted != {each.allocation.resource_name for each in held}:
        return Wait.CHANGED_REQUEST
    files = [file for each in held for file in each.files]
    if world.faults.are_all or any(file.stick is not None and file.stick.broken for file in files):
        return Wait.UNREAD
    if any(devices.may_have(other, file.node) for other in devices.others(started.pod_uid) for file in files):
        # what both were given as shared is not any more, or a card has joined what another pod has
        return Wait.HELD
    for each in held:
        name = each.allocation.resource_name
        resource = agent.manager.resources[name]
        is_served = name in agent.plugins or name in agent.foreign
        if not is_served or not are_listed(resource, each.allocation.device_ids):
            return Wait.NOT_SERVED
        if not each.files:
            return Wait.LOST_ANSWER
        if not all(is_as_it_was(world.host, file) for file in each.files):
            return Wait.NOT_AS_IT_WAS
    return None


def why_held_back(world: World, devices: HeldDevices, offer: Offer) -> Wait | None:
    """Why an offer is not free; None if no pod can have it."""
    if any(resource.flap_damping.damped for resource in world.running_agent.manager.resources.values()):
        return Wait.FLAPPING
    if world.cordons:
        return Wait.CORDONED
    if not all(held.files for held in devices.by_key.values()):
        return Wait.LOST_ANSWER
    if any(is_unread(world, node) for node in offer.nodes):
        return Wait.UNREAD
    for held in devices.by_key.values():
        if any(possibly(world.host, given, node) for given in held.files for node in offer.nodes):
            return Wait.HELD
        if any(node.number in held.numbers for node in offer.nodes):
            return Wait.HELD
        if any(node.stick is not None and node.stick.port in held.ports for node in offer.nodes):
            return Wait.HELD
    numbers = {file.node.number for instance in world.instances.values() for file in instance.files}
    by_number = world.host.by_number
    stale = [by_number[number] for number in numbers if number in by_number]
    if any(is_same(one, node) for one in stale for node in offer.nodes):
        return Wait.IN_CONTAINER
    return None


def is_unread(world: World, node: Node) -> bool:
    """Whether a file of its stick cannot be read, or a name that it shares with another stick."""
    if world.faults.are_all:
        return True
    names = {f"{world.root}{path}" for path in (node.path, *node.names)}
    is_broken = node.stick is not None and bool(node.stick.broken)
    return is_broken or not names.isdisjoint(world.faults.paths)
