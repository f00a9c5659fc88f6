"""Converts the devices of device managers and DRA drivers to offers for the comparison. Pure.

Of shares of a device, which several containers may hold, one stands for all: the device is offered twice if any of them is.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from nodedevice_api.extended_resources import domain_of

from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.availability import is_usable
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.identity import base_id, is_instance
from nodedevice_agent.offered_twice.compare import DeviceIDs, Offer
from nodedevice_agent.offered_twice.files import MOST_NODES, Host, dev_path
from nodedevice_agent.offered_twice.sources import Raw, Source, identities_of

if TYPE_CHECKING:
    from nodedevice_agent.dra.pools import Pool

# of one NodeDevice
MOST_PATHS: Final = 4096


class Held(Struct, frozen=True):
    """Devices that are held together, their files in the container, and the CDI devices that the plugin or driver named."""

    device_ids: DeviceIDs
    paths: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


class PoolOffer(Struct, frozen=True):
    """A shown pool of a DRA driver. held: names of devices that pods hold. cdi: names of CDI devices, by device."""

    resource_name: str
    pool: "Pool"
    held: Collection[str]
    cdi: Mapping[str, tuple[str, ...]]


def offer_of(resource: Resource, *, is_kubelets: bool = False) -> Offer:
    """The devices of a device manager, the agent's or the kubelet's, without identities."""
    name, units = resource.name, _Units(resource)
    source = Source.KUBELET if is_kubelets else Source.BUILT_IN if resource.presence.is_built_in else Source.PLUGIN
    scope = f"{source.name} {name}"
    return Offer(name, source, program_of(source, name), scope, resource.devices, units.is_offered, units.is_held)


def offer_of_pool(found: PoolOffer) -> Offer:
    pool, held = found.pool, found.held

    def is_offered(device_id: str) -> bool:
        device = pool.devices.get(device_id)
        is_out = device is None or any(taint.is_exclusive for taint in device.taints)
        return device_id in held or not is_out

    program, is_held = program_of(Source.DRA, pool.driver), held.__contains__
    return Offer(
        found.resource_name, Source.DRA, program, program, pool.devices, is_offered, is_held, driver=pool.driver
    )


def program_of(source: Source, name: str) -> str:
    """name: of the resource, whose domain identifies the vendor; or of the driver."""
    return source.name if source is Source.BUILT_IN else f"{source.name} {domain_of(name)}"


def held_of(allocations: Iterable[Allocation]) -> list[Held]:
    """allocations: with decoded responses, if these can be decoded."""
    found = []
    for allocation in allocations:
        edits = allocation.edits
        if edits is not None:
            paths = tuple(filter(None, (dev_path(file.host_path) for file in edits.devices[:MOST_NODES])))
            ids = tuple(dict.fromkeys(map(base_id, allocation.device_ids)))
            found.append(Held(ids, paths, edits.cdi_devices))
    return found


def held_of_pool(found: PoolOffer) -> list[Held]:
    """Several devices of a claim may have one CDI name."""
    named: dict[str, list[str]] = {}
    for device_id, names in found.cdi.items():
        for each in names:
            named.setdefault(each, []).append(device_id)
    return [Held(tuple(ids), cdi=(name,)) for name, ids in named.items()]


def paths_of(offer: Offer) -> Generator[None, None, tuple[str, ...]]:
    """The files to read: IDs that are paths, and files named by built-in plugins. Yields after each device."""
    found: dict[str, None] = {}
    for device in offer.devices.values():
        found.update(dict.fromkeys(_paths(offer.source, device)))
        if len(found) >= MOST_PATHS:
            break
        yield
    return tuple(filter(None, found))


def known_of(offer: Offer, host: Host) -> Generator[None, None, dict[str, tuple[str, ...]]]:
    """Identities by device ID. Yields after each device."""
    known: dict[str, tuple[str, ...]] = {}
    for listed_id, device in offer.devices.items():
        device_id = listed_id if offer.source is Source.DRA else base_id(listed_id)
        if device_id not in known and (found := identities_of(offer.source, _raw(offer, listed_id, device, host))):
            known[device_id] = found
        yield
    return known


def are_alike(before: Mapping[str, object], now: Offer) -> bool:
    """Whether two lists give the same identities, for example after a change of health: only IDs of a plugin's devices are read."""
    are_read_by_id = now.source in (Source.KUBELET, Source.PLUGIN)
    return before is now.devices or (are_read_by_id and before.keys() == now.devices.keys())


def statements_of(
    offer: Offer, held: Iterable[Held], host: Host, known: Mapping[str, tuple[str, ...]]
) -> list[tuple[DeviceIDs, tuple[str, ...]]]:
    """Identities from files of held devices; files of a MIG instance also belong to its GPU."""
    found, is_only = [], len(offer.devices) == 1
    for each in held:
        nodes = host.named(each.paths) + host.of_cdi(each.cdi)
        if nodes and not any(is_instance(token) for i in each.device_ids for token in known.get(i, ())):
            raw = Raw(nodes=nodes, is_only=is_only)
            found.append((each.device_ids, identities_of(offer.source, raw, is_of_all=False)))
    return found


# The input of identities, by source. A device belongs to a device manager or to a DRA driver's pool.
def _raw(offer: Offer, device_id: str, device: Any, host: Host) -> Raw:
    if offer.source is Source.DRA:
        return Raw(device_id, device.attributes)
    nodes = host.named(_paths(offer.source, device))
    if offer.source is Source.BUILT_IN:
        return Raw(device_id, dict(device.attributes), device.identity, nodes, is_shared=device.is_shared)
    return Raw(device_id, nodes=nodes, is_only=len(offer.devices) == 1)


def _paths(source: Source, device: Any) -> Iterator[str]:
    """The path from /dev on, or empty."""
    if source is Source.BUILT_IN:
        yield from (dev_path(path) for path, _ in device.files)
    elif source is not Source.DRA and device.id.startswith("/"):
        yield dev_path(base_id(device.id))


class _Units:
    """The listed shares of each device of a resource, computed at the first use."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._by_base: dict[str, list[str]] | None = None

    def is_offered(self, device_id: str) -> bool:
        """Whether a pod holds or can get the device."""
        return self.is_held(device_id) or any(is_usable(self._resource, each) for each in self._of(device_id))

    def is_held(self, device_id: str) -> bool:
        return any(each in self._resource.use.holders for each in self._of(device_id))

    def _of(self, device_id: str) -> Sequence[str]:
        if device_id in self._resource.devices or device_id in self._resource.use.holders:
            return (device_id,)
        if self._by_base is None:
            self._by_base = {}
            for each in {**self._resource.devices, **self._resource.use.holders}:
                if (base := base_id(each)) != each:
                    self._by_base.setdefault(base, []).append(each)
        return self._by_base.get(device_id, ())
