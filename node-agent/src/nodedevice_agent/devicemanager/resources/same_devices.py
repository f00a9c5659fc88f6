"""Which free devices are held back, as another name of each is held, cordoned or preferred. Pure.

What devices have in common is found once for each change of what they are. So an allocation, a release or another health costs
what those devices cost that have something in common with another one, and nothing where there are none.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.devicemanager.resources.claims import Claim, opened_files, winners
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.resource import OtherUse, Resource
from nodedevice_agent.identity import Identity, Index, is_number

# device files in running containers: the resource's name, one of the devices, the numbers, and whether these may be shared
GivenNumbers = Iterable[tuple[str, str, tuple[str, ...], bool]]
# the resource's name, and what its devices of one kind have alike, or the ID of a device that is not as it is listed
_Node = tuple[str, object]

# Of all built-in plugins, where those that are shared and alike count once. A node has some hundred.
MOST_KINDS: Final = 4096
_TOO_MANY_KINDS: Final = (
    "the configured plugins of this node list more than {0} devices that may be one and the same, and of this resource none is "
    "given out: narrow its paths or its selection, or those of other resources"
)


class _Kind(Struct, frozen=True, gc=False):
    """Listed devices that are shared and alike, or one that is not. number: its place among all."""

    number: int
    device: Device
    ids: Sequence[str]


class _Source(Struct, frozen=True):
    """What a resource's devices are. apart: claimed ones that are not as a plugin lists them now."""

    name: str
    kinds: Sequence[tuple[Device, Sequence[str]]]
    apart: Mapping[str, Identity]


class _Seen(Struct):
    """contested: nodes that have something in common with another one."""

    sources: Sequence[_Source] = ()
    kinds: Mapping[_Node, _Kind] = field(default_factory=dict)
    by_number: Mapping[str, Sequence[_Node]] = field(default_factory=dict)
    tokens: Mapping[_Node, tuple[str, ...]] = field(default_factory=dict)
    contested: frozenset[_Node] = frozenset()


class SameDevices:
    """Of the resources whose plugins say what their devices are; for any others it costs nothing."""

    def __init__(self, resources: Mapping[str, Resource], preference: Preference) -> None:
        self._resources = resources
        self._preference = preference
        self._seen = _Seen()

    @property
    def is_idle(self) -> bool:
        """Whether no plugin says what its devices are, nor has said it of held ones when it was asked last."""
        return not self._seen.sources and not any(r.listed.has_identities for r in self._resources.values())

    def held_back(
        self, given: GivenNumbers, out: Collection[str] = ()
    ) -> tuple[dict[str, dict[str, OtherUse]], dict[str, str]]:
        """By resource: what is held back, by device ID; and why nothing of it is given out.

        given: what running containers have. out: resources of which nothing is given out anyway.
        """
        by_preference = [resource for resource in self._resources.values() if resource.listed.has_identities]
        by_preference.sort(key=lambda resource: self._preference.key(resource.name))
        excess = _too_many(by_preference)
        self._follow(excess)
        given = [each for each in given if self._matters(each)] if by_preference else []
        near = {node for _, _, numbers, _ in given for node in self._at(numbers)}
        kinds: dict[str, list[_Kind]] = {}
        for node in self._seen.contested | near:
            if node in self._seen.kinds:
                kinds.setdefault(node[0], []).append(self._seen.kinds[node])
        found: dict[str, dict[str, OtherUse]] = {}
        if not kinds:
            return found, excess
        for of_resource in kinds.values():
            of_resource.sort(key=lambda kind: kind.number)
        giving = [r for r in by_preference if r.name not in out]
        offers = [offer for r in giving for kind in kinds.get(r.name, ()) if (offer := _offer(r, kind))]
        alike = {claim.key: ids for claim, ids in offers}
        claims = [*self._claims(kinds), *self._opened(given)]
        for (name, device_id), winner in winners(claims, (claim for claim, _ in offers)).items():
            found.setdefault(name, {}).update(dict.fromkeys(alike[name, device_id], self._other_use(winner)))
        return found, excess

    def _follow(self, excess: Collection[str]) -> None:
        sources = [_source(r, r.name in excess) for r in self._resources.values() if r.says_what_devices_are]
        if _are_as_before(self._seen.sources, sources):
            return
        kinds = {(s.name, _alike(device)): (device, ids) for s in sources for device, ids in s.kinds}
        tokens = {node: device.identity for node, (device, _) in kinds.items()}
        by_number: dict[str, list[_Node]] = {}
        for node, identity in tokens.items():
            for number in filter(is_number, identity):
                by_number.setdefault(number, []).append(node)
        tokens |= {(s.name, device_id): identity.tokens for s in sources for device_id, identity in s.apart.items()}
        contested = self._seen.contested if tokens == self._seen.tokens else _contested(tokens)
        numbered = {node: _Kind(number, *kind) for number, (node, kind) in enumerate(kinds.items())}
        self._seen = _Seen(sources, numbered, by_number, tokens, contested)

    def _at(self, numbers: Iterable[str]) -> Iterator[_Node]:
        return (node for number in numbers for node in self._seen.by_number.get(number, ()))

    def _matters(self, given: tuple[str, str, tuple[str, ...], bool]) -> bool:
        """Whether something that is listed with one of these numbers may be given out, or is another device, too."""
        _, _, numbers, is_shared = given
        return any(node in self._seen.contested or self._is_free(node, is_shared) for node in self._at(numbers))

    def _is_free(self, node: _Node, is_shared: bool) -> bool:
        kind = self._seen.kinds[node]
        return not (is_shared and kind.device.is_shared) and bool(self._resources[node[0]].free_of(kind.ids))

    def _claims(self, kinds: Mapping[str, Sequence[_Kind]]) -> Iterator[Claim]:
        for source in self._seen.sources:
            resource = self._resources[source.name]
            listed = (i for kind in kinds.get(source.name, ()) for i in kind.ids)
            claimed = {i: resource.identity_of(i) for i in listed if i in resource.holders or resource.is_cordoned(i)}
            for device_id, identity in {**claimed, **source.apart}.items():
                device = resource.reported(device_id)
                is_listed = device is not None and not device.is_unconfirmed
                if identity is not None:
                    yield Claim((resource.name, device_id), identity, resource.scoped_parent(device_id), is_listed)

    def _opened(self, given: GivenNumbers) -> Iterator[Claim]:
        given = [*given]
        numbers = {number for _, _, each, _ in given for number in each}
        opened = opened_files(numbers, [kind.device.identity for kind in self._seen.kinds.values()] if given else ())
        for resource_name, device_id, each, is_shared in given:
            tokens = {token for number in each for token in opened[number]}
            yield Claim((resource_name, device_id), Identity(tuple(sorted(tokens)), is_shared))

    def _other_use(self, winner: Claim) -> OtherUse:
        resource_name, device_id = winner.key
        resource = self._resources[resource_name]
        if device_id in resource.holders:
            return OtherUse(resource_name, device_id, "allocated")
        return OtherUse(resource_name, device_id, "cordoned" if resource.is_cordoned(device_id) else "offered")


def _too_many(by_preference: Iterable[Resource]) -> dict[str, str]:
    """By resource: why nothing of it is given out."""
    excess, count = {}, 0
    for resource in by_preference:
        count += len(resource.kinds)
        if count > MOST_KINDS:
            excess[resource.name] = _TOO_MANY_KINDS.format(MOST_KINDS)
    return excess


def _source(resource: Resource, is_excess: bool) -> _Source:
    if is_excess:
        return _Source(resource.name, (), resource.claimed_identities())
    return _Source(resource.name, resource.kinds, resource.claimed_identities(only_apart=True))


def _are_as_before(before: Sequence[_Source], now: Sequence[_Source]) -> bool:
    """A list is the same object as long as it is the same."""
    return len(before) == len(now) and all(
        a.name == b.name and a.kinds is b.kinds and a.apart == b.apart for a, b in zip(before, now, strict=True)
    )


def _alike(device: Device) -> object:
    """What devices of one kind have in common; see ListedDevices.kinds."""
    return (device.identity, device.parent) if device.is_shared else device.id


def _contested(tokens: Mapping[_Node, tuple[str, ...]]) -> frozenset[_Node]:
    index = Index[_Node]()
    for node, identity in tokens.items():
        index.add(node, identity)
    return frozenset(node for node, of in tokens.items() if any(other != node for other in index.related(of)))


def _offer(resource: Resource, kind: _Kind) -> tuple[Claim, Sequence[str]] | None:
    """The first free one, one for all that are alike; and the IDs of these."""
    free = resource.free_of(kind.ids)
    if not free:
        return None
    identity = Identity(kind.device.identity, kind.device.is_shared)
    return Claim((resource.name, free[0]), identity, resource.scoped_parent(free[0])), free
