"""What differs between the kubelet and us, and what of it is meant to.

Every allowance names the paragraph of docs/differences.md that it stands on; a difference without an allowance is a finding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.oracle.maker import Held, Verdict, Why, container_name
from tests.oracle.sides import Seen
from tests.oracle.steps import Ctr

WAITS = "A refused pod waits"
WHOLE_POD = "A pod is checked whole before any plugin is called"
VANISHED = "A device that vanishes while in use does no harm"
KEEPS = "An admitted pod keeps its devices over a restart"


@dataclass(frozen=True)
class Difference:
    """One observation in which the makers disagree. paragraph: of docs/differences.md; empty for a finding."""

    what: str
    kubelet: object
    ours: object
    paragraph: str = ""

    def __str__(self) -> str:
        return f"{self.what}\n    kubelet: {self.kubelet}\n    ours:    {self.ours}"


@dataclass(frozen=True)
class Situation:
    """The events of both sides so far, as far as it decides what may differ.

    pods: those that are there. failing: resources whose Allocate fails. advising: resources whose plugin gives advice, so
    that devices can be compared one by one. is_restart: the step was a restart of the manager.
    """

    pods: Mapping[str, tuple[Ctr, ...]]
    failing: frozenset[str] = frozenset()
    advising: frozenset[str] = frozenset()
    is_restart: bool = False


def differences(kubelet: Seen, ours: Seen, now: Situation) -> Iterator[Difference]:
    """Everything that differs after a step."""
    pods = now.pods
    for uid, theirs in kubelet.verdicts.items():
        own = ours.verdicts[uid]
        if (theirs.is_admitted, theirs.why) != (own.is_admitted, own.why):
            yield Difference(f"verdict on {uid}", theirs, own, _paragraph(theirs, own, pods[uid], now))
    if kubelet.numbers != ours.numbers:
        yield Difference("capacity and allocatable", kubelet.numbers, ours.numbers)
    both = {uid for uid, own in kubelet.verdicts.items() if own.is_admitted and ours.verdicts[uid].is_admitted} | (
        pods.keys() - kubelet.verdicts.keys()
    )
    for uid in sorted(both):
        yield from _devices(uid, pods[uid], kubelet.held, ours.held, now.advising)
    if all(own.is_admitted for own in (*kubelet.verdicts.values(), *ours.verdicts.values())):
        yield from _calls(kubelet, ours, now)


def _paragraph(theirs: Verdict, ours: Verdict, containers: tuple[Ctr, ...], now: Situation) -> str:
    """What allows two verdicts to differ, if anything does."""
    asked = {name for container in containers for name in container.limits}
    if theirs.is_admitted:
        return ""
    if ours.is_admitted:
        # a finished init container does not run, so the kubelet judges its devices again; and every hint of every pod
        is_judged_again = theirs.why is Why.TOPOLOGY or any(container.kind == "init" for container in containers)
        if now.is_restart:
            return KEEPS if is_judged_again else ""
        # advice for one container took what another needed: here it is tried without
        is_misled = theirs.why is Why.TOPOLOGY and len(containers) > 1 and now.advising & asked
        return WHOLE_POD if is_misled else ""
    # which resource is checked first, and whether a plugin was asked by then, decides which reason is given
    is_order = {theirs.why, ours.why} == {Why.LACKING, Why.TOPOLOGY} or (
        theirs.why is Why.PLUGIN and now.failing & asked
    )
    return WHOLE_POD if is_order else ""


def _devices(
    uid: str, containers: tuple[Ctr, ...], kubelet: Held, ours: Held, advising: frozenset[str]
) -> Iterator[Difference]:
    for resource in sorted({name for container in containers for name in container.limits}):
        theirs = [kubelet.get((uid, container_name(i), resource), {}) for i in range(len(containers))]
        held = [ours.get((uid, container_name(i), resource), {}) for i in range(len(containers))]
        what = f"{resource} of {uid}"
        if [len(ids) for ids in theirs] != [len(ids) for ids in held]:
            yield Difference(f"how many {what} each container holds", theirs, held)
        elif _reused(containers, theirs) != _reused(containers, held):
            yield Difference(f"how many {what} are an init container's, too", theirs, held)
        elif resource in advising and _together(theirs) != _together(held):
            yield Difference(f"which {what} the pod holds", _together(theirs), _together(held))
        elif resource in advising and theirs != held and not is_any_of_reused(containers, resource):
            yield Difference(f"which {what} each container holds", theirs, held)


def is_any_of_reused(containers: tuple[Ctr, ...], resource: str) -> bool:
    """A container takes some, not all, of what init containers had: the kubelet takes any of them."""
    reusable = 0
    for container in containers:
        count = container.limits.get(resource, 0)
        if 0 < count < reusable:
            return True
        reusable = max(reusable, count) if container.kind == "init" else max(reusable - count, 0)
    return False


def is_chance_passed_on(containers: tuple[Ctr, ...], resource: str) -> bool:
    """After a choice as of `is_any_of_reused` a later container asks for that resource, too.

    What is left for it is a matter of chance, and so, under a topology policy, are all its devices: of other resources as well.
    """
    asking = [at for at, container in enumerate(containers) if container.limits.get(resource)]
    return any(is_any_of_reused(containers[: at + 1], resource) for at in asking[:-1])


def _reused(containers: tuple[Ctr, ...], held: list[Mapping[str, tuple[int, ...]]]) -> list[int]:
    """For each container how many of its devices an init container before it had."""
    of_init: set[str] = set()
    found = []
    for container, ids in zip(containers, held, strict=True):
        found.append(len(of_init & ids.keys()))
        if container.kind == "init":
            of_init |= ids.keys()
    return found


def _together(held: list[Mapping[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    return {device_id: nodes for ids in held for device_id, nodes in sorted(ids.items())}


def _calls(kubelet: Seen, ours: Seen, now: Situation) -> Iterator[Difference]:
    if kubelet.allocated != ours.allocated:
        yield Difference("sizes of the Allocate calls", kubelet.allocated, ours.allocated)
    for resource in sorted(now.advising):
        theirs, own = kubelet.asked.get(resource, []), ours.asked.get(resource, [])
        if theirs != own and not any(is_any_of_reused(containers, resource) for containers in now.pods.values()):
            yield Difference(f"GetPreferredAllocation of {resource}", theirs, own)
