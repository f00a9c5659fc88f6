"""A Node's extended resources as the API server keeps them: values, their owners, and server-side apply's rules.

Only what the operator's decisions rest on, each rule as measured on nodes/status of a real API server:
an apply without force is refused as a whole when another owner has another value; the same value is owned by both; a key
that an owner's next apply leaves out is deleted unless somebody else owns it too; an update takes a key whose value it changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import ExtendedResource, NodeRecord

CAPACITY, ALLOCATABLE = "capacity", "allocatable"
MAPS = (CAPACITY, ALLOCATABLE)


@dataclass(slots=True)
class _Value:
    number: int
    owners: set[str]


@dataclass
class NodeStatusModel:
    """One Node. `uid` changes when it is made again, and `made` reports when that was."""

    name: str = "node-a"
    uid: str = "uid-1"
    version: int = 1
    made: str = ""
    _values: dict[tuple[str, str], _Value] = field(default_factory=dict)

    def record(self) -> NodeRecord:
        """What the operator would remember of it now."""
        resources = {resource for _, resource in self._values}
        seen = {name: self.seen(name) for name in sorted(resources)}
        return NodeRecord(self.name, self.uid, self.version, seen, made=self.made)

    def seen(self, resource: str) -> ExtendedResource:
        """One resource, with its owners."""
        capacity = self._values.get((CAPACITY, resource))
        allocatable = self._values.get((ALLOCATABLE, resource))
        return ExtendedResource(
            capacity.number if capacity else None,
            allocatable.number if allocatable else None,
            frozenset(capacity.owners) if capacity else frozenset(),
            frozenset(allocatable.owners) if allocatable else frozenset(),
        )

    def apply(self, numbers: Mapping[str, int], *, force: bool, manager: str = OURS) -> bool:
        """Server-side apply of capacity and allocatable; False when it is refused, and nothing was done then."""
        wanted = {(where, resource): number for where in MAPS for resource, number in numbers.items()}
        if not force and any(self._is_conflict(key, number, manager) for key, number in wanted.items()):
            return False
        for key in [key for key, value in self._values.items() if manager in value.owners and key not in wanted]:
            self._values[key].owners.discard(manager)
            if not self._values[key].owners:
                del self._values[key]
        for key, number in wanted.items():
            held = self._values.get(key)
            if held is not None and held.number == number:
                held.owners.add(manager)
            else:
                self._values[key] = _Value(number, {manager})
        self.version += 1
        return True

    def update(self, manager: str, resource: str, number: int | None, maps: tuple[str, ...] = MAPS) -> None:
        """Write a value as kubelets and kubectl do, by update or merge patch; None deletes it."""
        for where in maps:
            held = self._values.get((where, resource))
            if number is None:
                self._values.pop((where, resource), None)
            elif held is None or held.number != number:
                self._values[where, resource] = _Value(number, {manager})
        self.version += 1

    def remake(self, uid: str, made: str = "") -> None:
        """Delete the Node and make it again under the same name, without any extended resource."""
        self.uid = uid
        self.made = made
        self._values.clear()
        self.version += 1

    def forget_owners(self) -> None:
        """Reset managedFields by hand: the numbers stay, and nobody is named for them."""
        for value in self._values.values():
            value.owners.clear()
        self.version += 1

    def _is_conflict(self, key: tuple[str, str], number: int, manager: str) -> bool:
        held = self._values.get(key)
        return held is not None and held.number != number and bool(held.owners - {manager})
