"""Decodes the ResourceSlices of DRA drivers: only shown fields, within bounds.

The API server enforces the bounds of its release; the bounds here are wider, for later releases. Devices stay undecoded until
slice_of(), so that a driver that publishes very fast costs only a scan of the text.
Source: k8s.io/api resource/v1 types.go, k8s.io/dynamic-resource-allocation deviceattribute @ 1.37.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from itertools import islice
from typing import Final, Self

import msgspec
from msgspec import Struct, field
from nodedevice_api import extended_resources
from nodedevice_api.nodedevice import DeviceTaint
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_kube.paths import Resource

from nodedevice_agent.dra.devices import NO_ATTRIBUTES, Counters, Device, Slice
from nodedevice_agent.kube.responses import KubeMetadata, LargeObject

RESOURCE: Final = Resource("resource.k8s.io/v1", "resourceslices")

# The API server's are 128 devices, 32 attributes and capacities, 64 characters; a qualified name has 96.
MAX_DEVICES: Final = 256
MAX_ATTRIBUTES: Final = 64
MAX_NAME: Final = 128
MAX_VALUE: Final = 256
MAX_TAINTS: Final = 16
# as the CRD has them
_MAX_KEY: Final = 317
_MAX_TAINT_VALUE: Final = 63
_MAX_EFFECT: Final = 32
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")
# Bounds of shared counters, and of the counters that a device consumes. The API server's are 8 sets of 32, and 2 of 32.
MAX_SHARED_COUNTERS: Final = 512
MAX_COUNTERS: Final = 128
_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_MAX_NUMA_NODE: Final = 1023
# why devices of a slice are not known
_UNKNOWN_FORM: Final = "are of a form that this release does not know"
_NO_ROOM: Final = "are not read, as the ResourceSlices of this node are too large in sum"

_Value = str | int | bool
# set, name and amount of a counter; None if the amount's text is invalid. Takes the text.
_Counter = Callable[[str, str, str], tuple[str, str, Decimal] | None]


# -- on the wire --------------------------------------------------------------------------------------------------------------


_NULL: Final = msgspec.Raw(b"null")


class SlicePool(Struct):
    name: str = ""
    generation: int = 0
    resourceSliceCount: int = 1


class SliceSpec(Struct):
    driver: str = ""
    pool: SlicePool = field(default_factory=SlicePool)
    nodeName: str | None = None
    devices: msgspec.Raw = _NULL
    sharedCounters: msgspec.Raw = _NULL

    def __post_init__(self) -> None:
        # without the rest of the object's text
        self.devices, self.sharedCounters = self.devices.copy(), self.sharedCounters.copy()


_NO_SPEC: Final = SliceSpec()


class ResourceSliceObject(LargeObject):
    """spec: None if it cannot be decoded. is_left_out: its devices were dropped for lack of room."""

    resource = RESOURCE
    spec: SliceSpec | None = None
    is_left_out: bool = False

    @classmethod
    def known_by_name(cls, metadata: KubeMetadata) -> Self:
        """Replaces an object of another form."""
        return cls(metadata)

    @property
    def octets(self) -> int:
        spec = self.spec or _NO_SPEC
        return memoryview(spec.devices).nbytes + memoryview(spec.sharedCounters).nbytes

    def lighten(self) -> None:
        if self.spec is not None:
            self.spec.devices = self.spec.sharedCounters = _NULL
            self.is_left_out = True


class _Attribute(Struct):
    """One field is set; none for an unknown type."""

    string: str | None = None
    version: str | None = None
    whole: int | None = field(name="int", default=None)
    is_so: bool | None = field(name="bool", default=None)
    strings: list[str] | None = None
    versions: list[str] | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None


class _Quantity(Struct):
    value: str | int = ""


class _Taint(Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""
    timeAdded: str | None = None


class _Consumption(Struct):
    counterSet: str = ""
    counters: dict[str, _Quantity] | None = None


class _CounterSet(Struct):
    name: str = ""
    counters: dict[str, _Quantity] | None = None


class _Device(Struct):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Quantity] | None = None
    taints: list[_Taint] | None = None
    consumesCounters: list[_Consumption] | None = None


# -- in use -------------------------------------------------------------------------------------------------------------------


def slice_of(found: ResourceSliceObject, *, with_attributes: bool = True) -> Slice:
    """Decode the slice's devices. with_attributes: False without room for attributes."""
    spec = found.spec or _NO_SPEC
    problem = _NO_ROOM if found.is_left_out else ""
    devices, counters = list[_Device](), list[_CounterSet]()
    try:
        # both or neither: a slice with a problem shows no devices
        devices, counters = (
            decode(spec.devices, list[_Device] | None) or [],
            decode(spec.sharedCounters, list[_CounterSet] | None) or [],
        )
    except Undecodable:
        problem = _UNKNOWN_FORM
    named = [device for device in devices if 0 < len(device.name) <= MAX_NAME]
    texts: dict[str, str] = {}
    counter = cache(_counter)
    return Slice(
        found.metadata.name,
        spec.driver,
        spec.pool.name,
        spec.pool.generation,
        max(spec.pool.resourceSliceCount, 1),
        tuple(_device(device, texts, counter, with_attributes=with_attributes) for device in named[:MAX_DEVICES]),
        _counters(((each.name, each.counters) for each in counters), MAX_SHARED_COUNTERS, _counter),
        len(devices) - len(named[:MAX_DEVICES]),
        problem,
        with_attributes,
    )


def _device(device: _Device, texts: dict[str, str], counter: _Counter, *, with_attributes: bool) -> Device:
    """texts, and a counter with a cache: shared by the devices of a slice, because most values repeat."""
    attributes = device.attributes or {}
    return Device(
        texts.setdefault(device.name, device.name),
        _attributes(device, texts) if with_attributes else NO_ATTRIBUTES,
        tuple(_taint(taint) for taint in (device.taints or ())[:MAX_TAINTS] if taint.key and taint.effect),
        _numa_nodes(attributes.get(_NUMA_NODE)),
        _counters(((each.counterSet, each.counters) for each in device.consumesCounters or ()), MAX_COUNTERS, counter),
    )


def _taint(taint: _Taint) -> DeviceTaint:
    since = taint.timeAdded
    return DeviceTaint(
        key=taint.key[:_MAX_KEY],
        value=(taint.value or "")[:_MAX_TAINT_VALUE],
        effect=taint.effect[:_MAX_EFFECT],
        since=since if since and _TIME.fullmatch(since) else "",
    )


def _attributes(device: _Device, texts: dict[str, str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, attribute in islice((device.attributes or {}).items(), MAX_ATTRIBUTES):
        value = _text(attribute)
        if value is not None and len(name) <= MAX_NAME:
            found[texts.setdefault(name, name)] = texts.setdefault(value, value)
    for name, quantity in islice((device.capacity or {}).items(), MAX_ATTRIBUTES - len(found)):
        # a capacity may have the name of an attribute
        shown = f"capacity.{name}" if name in found else name
        if len(name) <= MAX_NAME:
            value = str(quantity.value)[:MAX_VALUE]
            found[texts.setdefault(shown, shown)] = texts.setdefault(value, value)
    return found or NO_ATTRIBUTES


def _text(attribute: _Attribute) -> str | None:
    """The attribute as text; None if its type is unknown."""
    one = (attribute.string, attribute.version, attribute.whole, attribute.is_so)
    value: _Value | None = next((each for each in one if each is not None), None)
    if value is not None:
        return _spelled(value)
    several = attribute.strings or attribute.versions or attribute.ints or attribute.bools
    return ", ".join(map(_spelled, several[:MAX_ATTRIBUTES]))[:MAX_VALUE] if several else None


def _spelled(value: _Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)[:MAX_VALUE]


def _numa_nodes(attribute: _Attribute | None) -> tuple[int, ...]:
    """A list begins with the device's own; others of the same socket follow."""
    if attribute is None:
        return ()
    node = attribute.whole if attribute.whole is not None else next(iter(attribute.ints or ()), None)
    return (node,) if node is not None and 0 <= node <= _MAX_NUMA_NODE else ()


def _counters(sets: Iterable[tuple[str, Mapping[str, _Quantity] | None]], most: int, counter: _Counter) -> Counters:
    made = (
        counter(set_name, name, str(quantity.value))
        for set_name, counters in sets
        for name, quantity in (counters or {}).items()
    )
    return tuple(islice(filter(None, made), most))


def _counter(set_name: str, name: str, quantity: str) -> tuple[str, str, Decimal] | None:
    amount = extended_resources.amount(quantity)
    return (set_name, name, amount) if amount is not None else None
