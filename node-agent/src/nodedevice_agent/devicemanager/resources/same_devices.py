"""Holds back free devices that are held, cordoned or preferred under another name. Pure.

Shared tokens are computed once for each change of identities. An allocation, a release or a change of health costs time only for
devices with shared tokens.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from nodedevice_agent.devicemanager.resources.devices import NOTHING, Device
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.same_device_winners import Claim, opened_files, winners
from nodedevice_agent.devicemanager.resources.use import OtherUse
from nodedevice_agent.identity import Identity, is_number
from nodedevice_agent.identity_index import overlapping

# device files in running containers: the resource's name, one of the devices, the numbers, and whether these may be shared
Given = tuple[str, str, tuple[str, ...], bool]
GivenNumbers = Iterable[Given]
# the resource's name, and the common key of its devices of one kind, or the ID of a device that differs from its list
_Node = tuple[str, object]
# its place among all, the first device, and the IDs of all that are shared and alike; see ListedDevices.kinds
_Kind = tuple[int, Device, Sequence[str]]
# a resource's name, its kinds, and claimed devices that differ from a plugin's current list
_Said = tuple[str, Mapping[object, tuple[Device, Sequence[str]]], Mapping[str, Identity]]

# For all built-in plugins; devices that are shared and alike count once. A node has some hundred.
MOST_KINDS: Final = 2048
_TOO_MANY_KINDS: Final = (
    "the configured plugins of this node list more than {0} devices that may be one and the same, so none of this resource is "
    "allocated: narrow its paths or its selection, or those of other resources"
)


class SameDevices(Struct, eq=False):
    """For resources whose plugins give identities; other resources cost nothing."""

    _resources: Mapping[str, Resource]
    _preference: Preference
    _seen: Sequence[_Said] = []
    _kinds: Mapping[_Node, _Kind] = {}
    _by_number: Mapping[str, Sequence[_Node]] = {}
    _tokens: Mapping[_Node, tuple[str, ...]] = {}
    # nodes that share a token or place with another one
    _contested: frozenset[_Node] = frozenset()

    @property
    def is_idle(self) -> bool:
        """Whether no plugin had given identities at the last check."""
        return not self._seen

    def held_back(
        self, given: GivenNumbers, out: Collection[str] = ()
    ) -> tuple[dict[str, dict[str, OtherUse]], dict[str, str]]:
        """By resource: the devices held back, and why none is allocated. given: files of containers. out: resources left out."""
        by_preference = [resource for resource in self._resources.values() if resource.listed.has_identities]
        by_preference.sort(key=lambda resource: self._preference.key(resource.name))
        excess = _too_many(by_preference)
        self._follow(excess)
        given = [each for each in given if self._matters(each)] if by_preference else []
        near = {node for _, _, numbers, _ in given for node in self._at(numbers)}
        kinds: dict[str, list[_Kind]] = {}
        for node in sorted(self._kinds.keys() & (self._contested | near), key=lambda node: self._kinds[node][0]):
            kinds.setdefault(node[0], []).append(self._kinds[node])
        giving = [r for r in by_preference if r.name not in out and r.name in kinds]
        offers = [offer for r in giving for kind in kinds[r.name] if (offer := _offer(r, kind))]
        alike = {claim.key: ids for claim, ids in offers}
        found: dict[str, dict[str, OtherUse]] = {}
        claims = [*self._claims(kinds), *self._opened(given)] if offers else ()
        for (name, device_id), winner in winners(claims, (claim for claim, _ in offers)).items():
            found.setdefault(name, {}).update(dict.fromkeys(alike[name, device_id], self._other_use(winner)))
        return found, excess

    def _follow(self, excess: Collection[str]) -> None:
        naming = [resource for resource in self._resources.values() if resource.identities.are_known]
        seen: Sequence[_Said] = [
            (
                r.name,
                NOTHING if (is_out := r.name in excess) else r.identities.said.kinds,
                r.identities.claimed(only_apart=not is_out),
            )
            for r in naming
        ]
        if seen == self._seen:
            return
        listed = [((name, alike), device, ids) for name, kinds, _ in seen for alike, (device, ids) in kinds.items()]
        tokens: dict[_Node, tuple[str, ...]] = {node: device.identity for node, device, _ in listed}
        by_number: dict[str, list[_Node]] = {}
        for node, identity in tokens.items():
            for number in filter(is_number, identity):
                by_number.setdefault(number, []).append(node)
        tokens |= {(name, i): identity.tokens for name, _, apart in seen for i, identity in apart.items()}
        if tokens != self._tokens:
            self._contested = overlapping(tokens)
        self._seen, self._by_number, self._tokens = seen, by_number, tokens
        self._kinds = {node: (number, device, ids) for number, (node, device, ids) in enumerate(listed)}

    def _at(self, numbers: Iterable[str]) -> Iterator[_Node]:
        return (node for number in numbers for node in self._by_number.get(number, ()))

    def _matters(self, given: Given) -> bool:
        """Whether a device listed with one of these numbers may be allocated, or is also another listed device."""
        nodes = [*self._at(given[2])]
        return any(
            node in self._contested or self._resources[node[0]].use.free_of(self._kinds[node][2]) for node in nodes
        )

    def _claims(self, kinds: Mapping[str, Sequence[_Kind]]) -> Iterator[Claim]:
        for name, _, apart in self._seen:
            resource = self._resources[name]
            listed = (device_id for _, _, ids in kinds.get(name, ()) for device_id in ids)
            claimed = {i: resource.identities.of(i) for i in resource.use.claimed_of(listed)}
            for device_id, identity in {**claimed, **apart}.items():
                device = resource.reported(device_id)
                is_listed = device is not None and not device.is_unconfirmed
                if identity is not None:
                    yield Claim((name, device_id), identity, resource.scoped_parent(device_id), is_listed)

    def _opened(self, given: Sequence[Given]) -> Iterator[Claim]:
        listed = [device.identity for _, device, _ in self._kinds.values()] if given else ()
        opened = opened_files({number for _, _, numbers, _ in given for number in numbers}, listed)
        for resource_name, device_id, numbers, is_shared in given:
            tokens = {token for number in numbers for token in opened[number]}
            yield Claim((resource_name, device_id), Identity(tuple(sorted(tokens)), is_shared))

    def _other_use(self, winner: Claim) -> OtherUse:
        resource_name, device_id = winner.key
        resource = self._resources[resource_name]
        if device_id in resource.use.holders:
            return OtherUse(resource_name, device_id, "allocated")
        return OtherUse(resource_name, device_id, "cordoned" if resource.use.is_cordoned(device_id) else "offered")


def _too_many(by_preference: Iterable[Resource]) -> dict[str, str]:
    """By resource: why none of its devices is allocated."""
    excess, count = {}, 0
    for resource in by_preference:
        count += len(resource.identities.said.kinds)
        if count > MOST_KINDS:
            excess[resource.name] = _TOO_MANY_KINDS.format(MOST_KINDS)
    return excess


def _offer(resource: Resource, kind: _Kind) -> tuple[Claim, Sequence[str]] | None:
    """The first free device, one for all that are alike; and the IDs of these."""
    _, device, ids = kind
    free = resource.use.free_of(ids)
    if not free:
        return None
    identity = Identity(device.identity, device.is_shared)
    return Claim((resource.name, free[0]), identity, resource.scoped_parent(free[0])), free
