"""A NodeDevice as the scheduler extender needs it: free parts of each physical device, and which pods hold some."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeVar

from nodedevice_api.nodedevice import AllocationStatus, HeldParts, PartRulesStatus
from nodedevice_api.parts import MAX_PART_DIGITS, Choice, PartRules, Placement, PodPlacement, numbers_of
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import shared
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema, is_only_shown

_BYTES_OF_ENTRY: Final = 200
_MOST_NUMBERS: Final = 10**MAX_PART_DIGITS
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class ParentParts:
    """One physical device: how many parts are healthy, and how many a pod could get by this status."""

    parent: str
    healthy: int
    available: int


@dataclass(frozen=True, slots=True)
class PodHolding:
    """index: of the parent. shared: the parts of each of several containers, which may overlap; empty for one container."""

    index: int
    parts: int
    shared: tuple[int, ...] = ()

    @property
    def by_container(self) -> tuple[int, ...]:
        return self.shared or (self.parts,)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """rules: None if the devices of the resource have no parts.

    sm_percent: percent of a parent's multiprocessors for each part without an annotation; None if they are not limited. holders: by
    pod UID, also of ended pods. refused: UIDs of pods whose allocation failed for good. has_status: whether its agent has reported.
    created: the API's timestamp. weight: the approximate memory of its parents and holders, in bytes.
    """

    name: str
    uid: str
    resource_version: int = field(compare=False)
    node: str
    resource: str
    delivery: str = ""
    rules: PartRules | None = None
    sm_percent: int | None = None
    parents: tuple[ParentParts, ...] = ()
    holders: Mapping[str, tuple[PodHolding, ...]] = field(default_factory=dict, hash=False)
    refused: frozenset[str] = frozenset()
    has_status: bool = True
    created: str = field(default="", compare=False)
    weight: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        return self.name

    @property
    def age(self) -> tuple[str, str]:
        return self.created, self.name

    @property
    def may_have_parts(self) -> bool:
        """Whether its devices have parts, or may have: no agent has reported them yet."""
        return self.rules is not None or not self.has_status

    def without_lists(self) -> "NodeParts":
        """The record without reported values: no pod fits."""
        return replace(
            self, rules=None, sm_percent=None, parents=(), holders={}, refused=frozenset(), has_status=False, weight=0
        )

    def without(self, uids: frozenset[str]) -> "NodeParts":
        """The record after these pods end. Unhealthy parts stay unavailable."""
        freed = Counter[int]()
        for uid in uids & self.holders.keys():
            freed.update({held.index: held.parts for held in self.holders[uid]})
        if not freed:
            return self
        parents = tuple(
            replace(each, available=min(each.healthy, each.available + freed[i])) for i, each in enumerate(self.parents)
        )
        return replace(self, parents=parents, holders={uid: of for uid, of in self.holders.items() if uid not in uids})


_holding = shared(PodHolding)
_holdings = shared(lambda *found: found)
_part_rules = shared(PartRules)


def node_parts(obj: NodeDeviceSchema) -> NodeParts:
    """The record of a NodeDevice, with parts or without."""
    meta, status = obj.metadata, obj.status
    parents = tuple(
        ParentParts(intern(d.id), d.parts.healthy, d.parts.available) for d in status.devices if d.parts is not None
    )
    served_by = status.agent.served_by if status.agent else ""
    parts = None if is_only_shown(served_by, obj.spec.resource_name) else status.parts
    made = NodeParts(
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        node=intern(obj.spec.node_name),
        resource=intern(obj.spec.resource_name),
        delivery=intern(status.agent.known_delivery) if status.agent else "",
        rules=_rules(parts) if parts is not None else None,
        sm_percent=parts.sm_percent if parts is not None else None,
        parents=parents if parts is not None else (),
        holders=_holders(status.allocations, {each.parent: i for i, each in enumerate(parents)})
        if parts is not None
        else {},
        refused=frozenset(intern(each.pod_uid) for each in status.waiting if each.final),
        has_status=status.total is not None or status.endpoint is not None,
        created=meta.creation_timestamp,
    )
    return replace(made, weight=_weight(made))


def _weight(made: NodeParts) -> int:
    held = sum(1 + len(holding.shared) for of_pod in made.holders.values() for holding in of_pod)
    texts = [each.parent for each in made.parents], made.holders, made.refused
    return _BYTES_OF_ENTRY * (held + sum(map(len, texts))) + sum(len(text) for of_kind in texts for text in of_kind)


def _rules(status: PartRulesStatus) -> PartRules:
    """Unknown words, as of a later release, count as the defaults."""
    return _part_rules(
        _word(Placement, status.placement, Placement.ANY),
        _word(Choice, status.choice, Choice.BINPACK),
        _word(PodPlacement, status.containers, PodPlacement.ANY),
    )


def _word(words: type[E], text: str, default: E) -> E:
    return words(text) if text in words.__members__.values() else default


def _holders(allocations: Iterable[AllocationStatus], index: Mapping[str, int]) -> dict[str, tuple[PodHolding, ...]]:
    by_pod: dict[str, list[HeldParts]] = {}
    for allocation in allocations:
        by_pod.setdefault(intern(allocation.pod_uid), []).extend(allocation.parts)
    return {uid: _holdings(*_of_pod(held, index)) for uid, held in by_pod.items()}


def _of_pod(held: Iterable[HeldParts], index: Mapping[str, int]) -> list[PodHolding]:
    by_parent: dict[int, list[HeldParts]] = {}
    for each in held:
        if each.parent in index:
            by_parent.setdefault(index[each.parent], []).append(each)
    return [_holding(i, *_together(parts)) for i, parts in sorted(by_parent.items())]


def _together(held: list[HeldParts]) -> tuple[int, tuple[int, ...]]:
    """The number of distinct parts, and the parts of each container."""
    if len(held) == 1:
        return held[0].parts, ()
    by_container = tuple(each.parts for each in held)
    try:
        numbers = {number for each in held for number in numbers_of(each.numbers, _MOST_NUMBERS)}
    except ValueError:
        return sum(by_container), by_container
    return len(numbers), by_container
