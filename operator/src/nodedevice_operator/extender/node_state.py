"""The parts of one resource on one node that a pod could get, or a sentence why not.

Free parts are the available ones in the node's status, less the promised ones that the status does not list. A pod whose parts are
unknown is subtracted from every physical device that has room for it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api.names import DELIVERY_KUBELET
from nodedevice_api.parts import Choice, PartRules, Placement
from nodedevice_kube import planner
from nodedevice_kube.planner import Misfit, Need, Parts, Planner, at_once, obeys

from nodedevice_operator.extender.pod_requests import ALL_PERCENT, container_percent, planned, taken
from nodedevice_operator.objects.node_parts import NodeParts

_NO_RULES: Final = PartRules()
_PLENTY: Final = 1 << 62
# By container and parent, for one resource: how many parts.
Assigned = Mapping[str, Mapping[str, int]]
# verdicts of one state of a node
_MOST_VERDICTS: Final = 64
_CHOSEN_THERE: Final = (
    "the kubelet of the node allocates devices itself (delivery kubelet): parts cannot be assigned there"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """Parts promised to a pod that the status does not list. assigned: None if the node chooses them."""

    containers: tuple[Need, ...]
    sm_percent: int | None = None
    assigned: Assigned | None = None


@dataclass(slots=True)
class View:
    """free: by parent; one entry for all if any parts will do. percent: the remaining percent of each parent's multiprocessors;
    None if they are not limited. promised: parents with promised percent. plain: the most parts of one parent, if a container needs
    nothing else; else -1.
    problem: why no pod gets parts there.
    """

    record: NodeParts
    free: dict[str, int] = field(default_factory=dict)
    percent: dict[str, int] | None = None
    promised: frozenset[str] = frozenset()
    problem: str = ""
    sizes: tuple[int, ...] = ()
    plain: int = -1
    total: int = field(init=False)
    _verdicts: dict[tuple[tuple[Need, ...], int | None], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = sum(self.sizes)

    @property
    def rules(self) -> PartRules:
        return self.record.rules or _NO_RULES

    def verdict(self, containers: tuple[Need, ...], sm_percent: int | None) -> str:
        """Why these containers do not fit, as a sentence; empty if they do."""
        key = containers, sm_percent
        found = self._verdicts.get(key)
        if found is None:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            found = self._verdicts[key] = self._verdict(containers, sm_percent)
        return found

    def plan(self, containers: tuple[Need, ...], sm_percent: int | None) -> dict[str, Parts] | str:
        """Parts by container; {} if the node chooses; a sentence if the pod does not fit."""
        if self.problem or self.record.rules is None:
            return self.problem or {}
        needs = planned(containers, self.rules, sm_percent, self.record.sm_percent)
        node = Planner(self.rules, self.free, percent_left=self.percent, promised=self.promised)
        found = node.plan(needs)
        if isinstance(found, Misfit):
            return node.problem(self.record.resource, needs, found)
        return {need.container: parts for need, parts in zip(needs, found, strict=True) if parts}

    def without(self, parts: Mapping[str, int]) -> "View":
        """The same after another pod got these parts. Only for parents without limited multiprocessors, and not for a pool."""
        free = {parent: room - parts.get(parent, 0) for parent, room in self.free.items()}
        sizes = tuple(sorted(free.values()))
        return View(self.record, free, sizes=sizes, plain=sizes[-1] if self.plain >= 0 else -1)

    def rank(self, whole: int) -> tuple[int, int]:
        """The sort key by fullness for a pod with `whole` parts: parts left on the chosen physical device, parts free on the node.
        Negative if it does not fit.
        """
        sizes, total = self.sizes, self.total
        place = len(sizes)
        if self.rules.placement is not Placement.ANY and sizes and whole <= sizes[-1]:
            place = place - 1 if self.rules.choice is Choice.SPREAD else bisect_left(sizes, whole)
        # more than one physical device has: containers on several
        return (sizes[place] if place < len(sizes) else total) - whole, total

    def _verdict(self, containers: tuple[Need, ...], sm_percent: int | None) -> str:
        rules = self.record.rules
        if self.problem or rules is None:
            return self.problem
        if self.percent is None and self.sizes and planner.is_enough(rules, containers, self.sizes[-1]):
            return ""
        needs = planned(containers, rules, sm_percent, self.record.sm_percent)
        return planner.problem(self.record.resource, rules, needs, self.free, self.percent, self.promised)


def view_of(record: NodeParts, claims: Iterable[Claim], annotated: Mapping[str, int | None]) -> View:
    """Computes the free parts. annotated: by pod UID, the percent of its annotation, of all known holders."""
    if not record.has_status:
        return View(record, problem=f"the node's agent has not reported {record.resource} yet")
    if record.rules is None:
        return View(record, plain=_PLENTY)
    if record.delivery == DELIVERY_KUBELET:
        return View(record, problem=_CHOSEN_THERE)
    free = {each.parent: each.available for each in record.parents}
    if record.rules.placement is Placement.ANY:
        free = {"": max(0, sum(free.values()) - sum(at_once(claim.containers) for claim in claims))}
        return View(record, free, sizes=tuple(free.values()))
    percent = _percent_left(record, annotated)
    before = dict(percent or {})
    loose = _take_assigned(record, free, percent, list(claims))
    for claim in loose:
        _take_anywhere(record, free, percent, claim)
    sizes = tuple(sorted(free.values()))
    is_plain = percent is None and record.rules.placement is Placement.SAME_PARENT and sizes
    promised = frozenset(parent for parent, left in (percent or {}).items() if left < before[parent])
    return View(record, free, percent, promised, sizes=sizes, plain=sizes[-1] if is_plain else -1)


def _percent_left(record: NodeParts, annotated: Mapping[str, int | None]) -> dict[str, int] | None:
    if record.sm_percent is None:
        return None
    left = {each.parent: ALL_PERCENT for each in record.parents}
    for uid, holdings in record.holders.items():
        for held in holdings:
            used = ALL_PERCENT
            if uid in annotated:
                used = sum(container_percent(parts, annotated[uid], record.sm_percent) for parts in held.by_container)
            parent = record.parents[held.index].parent
            left[parent] = max(0, left[parent] - used)
    return left


def _take_assigned(
    record: NodeParts, free: dict[str, int], percent: dict[str, int] | None, claims: Sequence[Claim]
) -> list[Claim]:
    """Subtracts assigned parts. Returns the claims whose node may choose other parts, as the assigned ones are not free."""
    rules = record.rules or _NO_RULES
    wanted: list[tuple[Claim, Assigned, dict[str, int]]] = []
    loose: list[Claim] = []
    units, percents = dict[str, int](), Counter[str]()
    for claim in claims:
        of = claim.assigned
        if of is None or not all(obeys(rules, each, of.get(each.container, {})) for each in claim.containers):
            loose.append(claim)
            continue
        parts = taken(claim.containers, of)
        wanted.append((claim, of, parts))
        for parent, count in parts.items():
            units[parent] = units.get(parent, 0) + count
        if percent is not None:
            percents.update(_percent_at_once(claim, of, record.sm_percent))
    over = {parent for parent, count in units.items() if count > free.get(parent, 0)}
    if percent is not None:
        over |= {parent for parent, share in percents.items() if share > percent.get(parent, 0)}
    for claim, assigned, parts in wanted:
        if not over.isdisjoint(parts):
            loose.append(claim)
            continue
        for parent, count in parts.items():
            free[parent] -= count
        if percent is not None:
            for parent, share in _percent_taken(claim, assigned, record.sm_percent):
                percent[parent] = max(0, percent[parent] - share)
    return loose


def _percent_taken(claim: Claim, assigned: Assigned, sm_percent: int | None) -> Iterator[tuple[str, int]]:
    """By container: parent and percent; all of it is unavailable to other pods."""
    for each in claim.containers:
        for parent, parts in assigned[each.container].items():
            yield parent, 0 if sm_percent is None else container_percent(parts, claim.sm_percent, sm_percent)


def _percent_at_once(claim: Claim, assigned: Assigned, sm_percent: int | None) -> dict[str, int]:
    """By parent: the most percent that the pod needs at once; each init container frees its share for the next."""
    needs: dict[str, list[Need]] = {}
    for each in claim.containers:
        for parent, share in _percent_taken(replace(claim, containers=(each,)), assigned, sm_percent):
            needs.setdefault(parent, []).append(Need(share, each.is_init))
    return {parent: at_once(shares) for parent, shares in needs.items()}


def _take_anywhere(record: NodeParts, free: dict[str, int], percent: dict[str, int] | None, claim: Claim) -> None:
    """Subtracts a pod from each physical device that has room for one of its containers."""
    is_single = (record.rules or _NO_RULES).placement is Placement.SAME_PARENT
    least = min(each.count for each in claim.containers) if is_single else 1
    whole = at_once(claim.containers) if is_single else len(claim.containers)
    share = sum(
        container_percent(each.count if is_single else 1, claim.sm_percent, record.sm_percent or 0)
        for each in claim.containers
    )
    for parent, room in free.items():
        if room >= least:
            free[parent] = room - min(room, whole)
            if percent is not None:
                percent[parent] = max(0, percent[parent] - share)
