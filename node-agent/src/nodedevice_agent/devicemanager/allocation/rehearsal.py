"""Rehearses a pod's transaction before any plugin is called, so that a pod that cannot be aligned causes no calls.

Each container's nodes and devices limit the choice of the next container. An init container near one device alone may leave too few
devices to the pod's main container. If the first choices end in a rejection, the rehearsal tries others within a bound, the last
container's first. The kubelet tries one, and takes any of several equal devices.

Source: kubelet topologymanager scopes @ 1.37, calculateAffinity.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.pod_allocation import PodAllocation
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyScope, align
from nodedevice_agent.devicemanager.pods import DeviceRequest

# Rehearsals block the agent. For each request one reads all devices twice, each set of NUMA nodes, and each such set that has
# devices of its own; in units of 0.3 microseconds, so that all of one pod are some forty milliseconds.
_MOST_LOOKS = 131072
_LOOKS_A_REQUEST, _LOOKS_A_DEVICE, _LOOKS_A_SET, _LOOKS_A_GROUP = 256, 2, 4, 32
# Limit for a single container, which leaves no devices to others: above it, no rehearsal is made.
_MOST_LOOKS_OF_ONE = 8192
# alternatives at one choice
_MOST_WAYS = 64

T = TypeVar("T")


class _Choice(Struct):
    """way: index of the chosen alternative, out of `ways`. resources: the resources that it concerns."""

    way: int
    ways: int
    resources: frozenset[str]


class Ways:
    """The alternatives taken by each rehearsal: the first at each choice, then other combinations, the last choice first."""

    def __init__(self) -> None:
        self._choices: list[_Choice] = []
        self._at = 0

    @property
    def are_first(self) -> bool:
        return not any(choice.way for choice in self._choices)

    def chooser(self, resources: frozenset[str]) -> Callable[[Sequence[T]], T]:
        """Choose the alternative for a decision about these resources."""

        def choose(ways: Sequence[T]) -> T:
            if self._at == len(self._choices):
                self._choices.append(_Choice(0, len(ways), resources))
            choice = self._choices[self._at]
            self._at += 1
            return ways[choice.way]

        return choose

    def turn(self, resources: frozenset[str]) -> bool:
        """Begin again with the next combination that matters to these resources. Returns whether one is left."""
        self._at = 0
        while self._choices:
            last = self._choices[-1]
            if last.way + 1 < last.ways and not resources.isdisjoint(last.resources):
                last.way += 1
                return True
            self._choices.pop()
        return False


def too_much(topology: Topology, current: PodAllocation) -> str:
    """Why the pod is not served if its rehearsal would take too long; "" for most pods."""
    if not topology.is_strict or _has_one_container(current) or (looks := _looks(topology, current)) <= _MOST_LOOKS:
        return ""
    containers = len({request.container for request in current.requests})
    return (
        f"{containers} containers of the pod ask for devices that have to be near each other, on a node with so many NUMA nodes "
        f"and devices that {max(containers * _MOST_LOOKS // looks, 1)} may: ask for them in fewer containers, or in several pods"
    )


def rehearse(topology: Topology, current: PodAllocation) -> DeviceRequest | None:
    """Returns the request that the policy rejects, if any. Only the decision for the first container stays, as a plugin's preferred
    devices may change the rest. All decisions stay if no plugin is asked and the first choices fail.
    """
    if not topology.is_aligning:
        return None
    if _looks(topology, current) > (_MOST_LOOKS_OF_ONE if _has_one_container(current) else _MOST_LOOKS):
        # the latter with best effort alone
        return None if align(topology, current) else current.request
    ways, rejected = Ways(), None
    # the first choice of nodes is always admitted without a strict policy; one container leaves no devices to others
    is_once = not topology.is_strict or _has_one_container(current)
    for _ in range(1 if is_once else max(_MOST_LOOKS // _looks(topology, current), 1)):
        trial = PodAllocation(current.pod, current.requests, current.book)
        try:
            failed = _rehearse(topology, trial, ways)
        finally:
            trial.release()
        if failed is None:
            _keep(topology, current, trial, ways)
            return None
        rejected = rejected or failed
        if not ways.turn(_resources(topology, current, failed)):
            break
    return rejected


def _has_one_container(current: PodAllocation) -> bool:
    return len({request.container for request in current.requests}) == 1


def _looks(topology: Topology, current: PodAllocation) -> int:
    """The cost of one rehearsal, in units of _MOST_LOOKS."""
    lists = [current.book.resources[request.resource_name].listed for request in current.requests]
    of_lists = sum(_LOOKS_A_DEVICE * len(listed.devices) + _LOOKS_A_GROUP * len(listed.at_nodes) for listed in lists)
    sets = _LOOKS_A_SET << len(topology.numa_nodes)
    return of_lists + len(lists) * (_LOOKS_A_REQUEST + sets)


def _resources(topology: Topology, current: PodAllocation, request: DeviceRequest) -> frozenset[str]:
    """The requests that are aligned together with that request."""
    is_whole_pod = topology.scope is TopologyScope.POD
    return frozenset(r.resource_name for r in current.requests if is_whole_pod or r.container == request.container)


def _rehearse(topology: Topology, trial: PodAllocation, ways: Ways) -> DeviceRequest | None:
    while trial.skip_met() is None and (request := trial.request) is not None:
        if not align(topology, trial, ways.chooser(_resources(topology, trial, request))):
            return request
        resource = trial.book.resources[request.resource_name]
        selection = trial.select(resource, is_strict=topology.is_strict)
        if selection is None:
            return request
        selection = selection.varied(resource.devices, ways.chooser(frozenset([resource.name])), _MOST_WAYS)
        trial.reserve(resource, selection.completed())
        trial.rehearsed[request.container, request.resource_name] = trial.chosen
        trial.advance(request, trial.chosen)
    return None


def _keep(topology: Topology, current: PodAllocation, trial: PodAllocation, ways: Ways) -> None:
    is_advised = current.use_preferred and any(
        current.book.resources[request.resource_name].newest.options.get_preferred_allocation_available
        for request in current.requests
    )
    if not ways.are_first and not is_advised:
        current.affinities.update(trial.affinities)
        current.rehearsed.update(trial.rehearsed)
    else:
        is_whole_pod = topology.scope is TopologyScope.POD
        current.affinities.update(islice(trial.affinities.items(), None if is_whole_pod else 1))
