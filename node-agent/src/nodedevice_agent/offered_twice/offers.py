"""What the device managers and the DRA pools of this node offer, brought into one form for the comparison. Pure.

A device manager is ours, or what is known of the kubelet's. Of shares of a device, which several containers may hold, one stands
for all: the device is offered twice if any of them is.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.nodedevice import DeviceTaint

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.resources.availability import is_usable
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.identity import base_id, is_instance
from nodedevice_agent.offered_twice.compare import DeviceIDs, Offer
from nodedevice_agent.offered_twice.files import MOST_NODES, Host, dev_path
from nodedevice_agent.offered_twice.sources import Raw, Source, identities_of

# of one NodeDevice
MOST_PATHS: Final = 4096


class Held(Struct, frozen=True):
    """Devices that one container holds, what of their files it got, and the CDI devices that the plugin named."""

    device_ids: DeviceIDs
    paths: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


class DriversDevice(Protocol):
    """As it is in a ResourceSlice."""

    @property
    def attributes(self) -> Mapping[str, str]: ...

    @property
    def taints(self) -> Sequence[DeviceTaint]: ...


class DriversPool(Protocol):
    """All devices of one pool, by name."""

    @property
    def driver(self) -> str: ...

    @property
    def devices(self) -> Mapping[str, DriversDevice]: ...


def source_of(resource: Resource, *, is_kubelets: bool) -> Source:
    if is_kubelets:
        return Source.KUBELET
    return Source.BUILT_IN if resource.is_built_in else Source.PLUGIN


def program_of(source: Source, name: str) -> str:
    """name: of the resource, whose domain is that of its vendor's plugin; or of the driver."""
    return source.name if source is Source.BUILT_IN else f"{source.name} {domain_of(name)}"


def held_of(allocations: Iterable[Allocation]) -> list[Held]:
    """allocations: with their responses decoded, where that is possible."""
    found = []
    for allocation in allocations:
        edits = allocation.edits
        if edits is not None:
            paths = tuple(filter(None, (dev_path(file.host_path) for file in edits.devices[:MOST_NODES])))
            ids = tuple(dict.fromkeys(map(base_id, allocation.device_ids)))
            found.append(Held(ids, paths, edits.cdi_devices))
    return found


def paths_of(devices: Collection[Device], source: Source) -> Generator[None, None, tuple[str, ...]]:
    """The files whose numbers have to be known: IDs that are paths, and what a built-in plugin names. Yields after each device."""
    found: dict[str, None] = {}
    for device in devices:
        if source is Source.BUILT_IN:
            found.update(dict.fromkeys(dev_path(path) for path, _ in device.files))
        elif device.id.startswith("/"):
            found[dev_path(base_id(device.id))] = None
        if len(found) >= MOST_PATHS:
            break
        yield
    return tuple(filter(None, found))


def are_alike(before: Mapping[str, Device], now: Mapping[str, Device], source: Source) -> bool:
    """Whether the same is known of two lists, as where a device of a plugin has broken: of its devices only IDs are read."""
    return before is now or (source is not Source.BUILT_IN and before.keys() == now.keys())


def known_of(
    devices: Collection[Device], source: Source, host: Host
) -> Generator[None, None, dict[str, tuple[str, ...]]]:
    """Identities by device ID. Yields after each device."""
    known: dict[str, tuple[str, ...]] = {}
    for device in devices:
        device_id = base_id(device.id)
        if device_id not in known:
            found = identities_of(source, _raw(device, source, host, is_only=len(devices) == 1))
            if found:
                known[device_id] = found
        yield
    return known


def known_of_pool(devices: Mapping[str, DriversDevice]) -> Generator[None, None, dict[str, tuple[str, ...]]]:
    """The same of a DRA driver's pool."""
    known: dict[str, tuple[str, ...]] = {}
    for name, device in devices.items():
        if found := identities_of(Source.DRA, Raw(name, device.attributes)):
            known[name] = found
        yield
    return known


def _raw(device: Device, source: Source, host: Host, *, is_only: bool) -> Raw:
    if source is Source.BUILT_IN:
        nodes = host.named(dev_path(path) for path, _ in device.files)
        return Raw(device.id, dict(device.attributes), device.identity, nodes, is_shared=device.is_shared)
    path = dev_path(base_id(device.id)) if device.id.startswith("/") else ""
    return Raw(device.id, nodes=host.named([path]), is_only=is_only)


def offer_of(
    resource: Resource, source: Source, host: Host, known: Mapping[str, tuple[str, ...]], held: Sequence[Held]
) -> Offer:
    is_only = len(resource.devices) == 1
    statements = []
    for each in () if source is Source.BUILT_IN else held:
        nodes = host.named(each.paths) + host.of_cdi(each.cdi)
        if nodes and not _has_instance(each.device_ids, known):
            found = identities_of(source, Raw(nodes=nodes, is_only=is_only), is_of_all=False)
            statements.append((each.device_ids, found))
    units = _Units(resource)
    return Offer(
        resource.name,
        source,
        program_of(source, resource.name),
        f"{source.name} {resource.name}",
        known,
        statements,
        units.is_offered,
        units.is_held,
    )


def _has_instance(device_ids: Iterable[str], known: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether one of them is an instance of a GPU, whose files are the GPU's, too."""
    return any(is_instance(identity) for device_id in device_ids for identity in known.get(device_id, ()))


class _Units:
    """Of one resource: the shares by which a device is listed, found when it is asked for."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._by_base: dict[str, list[str]] | None = None

    def is_offered(self, device_id: str) -> bool:
        """Whether a pod holds it, or could get it."""
        return self.is_held(device_id) or any(is_usable(self._resource, each) for each in self._of(device_id))

    def is_held(self, device_id: str) -> bool:
        return any(each in self._resource.holders for each in self._of(device_id))

    def _of(self, device_id: str) -> Sequence[str]:
        if device_id in self._resource.devices or device_id in self._resource.holders:
            return (device_id,)
        if self._by_base is None:
            self._by_base = {}
            for each in {**self._resource.devices, **self._resource.holders}:
                if (base := base_id(each)) != each:
                    self._by_base.setdefault(base, []).append(each)
        return self._by_base.get(device_id, ())


class PoolOffer(Struct, frozen=True):
    """A DRA driver's pool that is shown. held: names of devices that pods hold. cdi: names of CDI devices, by device."""

    resource_name: str
    pool: DriversPool
    held: Collection[str]
    cdi: Mapping[str, tuple[str, ...]]


def offer_of_pool(found: PoolOffer, host: Host, known: Mapping[str, tuple[str, ...]]) -> Offer:
    pool, held = found.pool, found.held
    # one name may be that of several devices of a claim
    named: dict[str, list[str]] = {}
    for device_id, names in found.cdi.items():
        for each in names:
            named.setdefault(each, []).append(device_id)
    statements = []
    for each, device_ids in named.items():
        nodes = host.of_cdi([each])
        if nodes and not _has_instance(device_ids, known):
            raw = Raw(nodes=nodes, is_only=len(pool.devices) == 1)
            statements.append((tuple(device_ids), identities_of(Source.DRA, raw, is_of_all=False)))

    def is_offered(device_id: str) -> bool:
        device = pool.devices.get(device_id)
        is_out = device is None or any(taint.is_exclusive for taint in device.taints)
        return device_id in held or not is_out

    program = program_of(Source.DRA, pool.driver)
    return Offer(
        found.resource_name,
        Source.DRA,
        program,
        program,
        known,
        statements,
        is_offered,
        held.__contains__,
        pool.driver,
    )
