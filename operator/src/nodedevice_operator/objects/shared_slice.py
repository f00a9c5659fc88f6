"""The record of a DRA driver's ResourceSlice that belongs to several nodes, for counting.

Source: resource.k8s.io/v1 ResourceSlice; `nodeName` is empty if `allNodes`, `nodeSelector` or `perDeviceNodeSelection` selects the
nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_api import names
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import MetadataSchema, Schema

# Drivers that are counted by themselves; the others are counted together. No driver can have that name.
MOST_DRIVERS: Final = 50
OTHER: Final = "(other)"


class _Device(Schema):
    """Nothing of it: devices are only counted."""


class _Spec(Schema):
    driver: str
    devices: list[_Device] = []


class SharedSliceSchema(Schema):
    metadata: MetadataSchema
    spec: _Spec


@dataclass(frozen=True, slots=True)
class SharedSlice:
    """A slice, its driver, and how many devices it has."""

    name: str
    uid: str
    resource_version: int = field(compare=False)
    driver: str
    devices: int

    @property
    def key(self) -> str:
        return self.name

    @property
    def node(self) -> str:
        """None: a store keeps them by driver in its place."""
        return self.driver


def shared_slice(obj: SharedSliceSchema) -> SharedSlice:
    meta, spec = obj.metadata, obj.spec
    return SharedSlice(meta.name, meta.uid, int(meta.resource_version), intern(spec.driver), len(spec.devices))


@dataclass(frozen=True, slots=True)
class Count:
    slices: int = 0
    devices: int = 0


def by_driver(slices: Iterable[SharedSlice]) -> Mapping[str, Count]:
    """How many slices and devices each driver has, sorted; without our own driver, whose slices are made of NodeDevices."""
    counts: dict[str, Count] = {}
    for each in slices:
        before = counts.get(each.driver, Count())
        counts[each.driver] = Count(before.slices + 1, before.devices + each.devices)
    counts.pop(names.DRA_DRIVER, None)
    ordered = sorted(counts.items())
    found = dict(ordered[:MOST_DRIVERS])
    if rest := [count for _, count in ordered[MOST_DRIVERS:]]:
        found[OTHER] = Count(sum(count.slices for count in rest), sum(count.devices for count in rest))
    return found
