"""One resource: its plugins' connections, the devices they list, flap damping, and the administrator's cordons.

Source: kubelet device manager, endpoints and their stop grace period. Connections have an identity, so the end of an old
plugin's connection never affects a newer one (the kubelet before 1.37 looked them up by resource name).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum

from msgspec import Struct
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.names import ALL_DEVICES
from nodedevice_api.parts import parent_and_number
from nodedevice_common.interning import intern

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.aliases import HeldIds, as_known
from nodedevice_agent.devicemanager.resources.connections import (
    BUILT_IN,
    NO_OPTIONS,
    Connection,
    Connections,
    PluginOptions,
)
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, NOTHING, Device, ListedDevices, Size
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDamping, FlapDampingLimits
from nodedevice_agent.devicemanager.resources.known_identities import KnownIdentities
from nodedevice_agent.identity import Identity

STOP_GRACE_PERIOD_SECONDS = 300.0


class EndpointState(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Gone"


_OF_DOMAIN = "domain "


class OtherUse(Struct, frozen=True):
    """Why a listed device is not given out. resource_name, device_id: the same device elsewhere; use: what is done with it there,
    a word. Where a physical device is used in another way, device_id is empty, and use says in which.
    """

    resource_name: str
    device_id: str = ""
    use: str = ""


@dataclass(slots=True, eq=False)
class Resource:
    """Mutable state of one resource; only the device manager changes it. It has slots, and an object of its own for little of what
    is empty: hundreds of names whose plugins are gone stay for an hour, each object in a page of memory that is else free.

    deadlines: of the device manager.
    """

    name: str
    _: KW_ONLY
    # False until the administrator's cordons were read once; nothing is allocated before
    are_cordons_synced: bool = True
    # whether the kubelet allocates its devices, and not this device manager
    is_attributed: bool = False
    flapping: InitVar[FlapDampingLimits | None] = None
    deadlines: InitVar[Deadlines | None] = None
    flap_damping: FlapDamping = field(init=False)
    # as the administrator named them, devices or their physical devices; and the devices that these are, listed ones
    cordons: frozenset[str] = frozenset()
    cordoned_ids: frozenset[str] = frozenset()
    # device ID to who has the same device, or uses it in another way: not allocated before that ends
    held_back: Mapping[str, OtherUse] = field(default_factory=lambda: NOTHING)
    # why none of its devices can be given out, as there are too many of those that need comparing; empty where they are few
    excess: str = ""
    # how often what is held of it has changed
    holds: int = 0
    # by physical device: the size of the parts that are held, or else listed; without empty ones
    part_sizes: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    # device ID to pod UID: of committed allocations (kept by the AllocationBook), and reserved by one in flight
    holders: dict[str, str] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    # physical devices of held ones that are not listed any more, such as instances that were destroyed
    _past_parents: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    # within what its parents are IDs, and who says so: the newest plugin, also after its end; None while it is not known
    scope: str | None = None
    # whether another built-in plugin has not listed yet since the start
    awaits_others: bool = False
    # UIDs of pods that may hold devices unknown here; nothing is allocated before they are gone
    possible_holders: frozenset[str] = frozenset()
    state: EndpointState = EndpointState.STOPPED
    # while it is stopped: when its devices are forgotten
    _grace_ends_at: float | None = None
    # after a restart, while the plugin has not listed its devices: until when the last published numbers stay
    _settle_until: float | None = None
    _settles_at: float | None = None
    connections: Connections = field(default_factory=Connections)
    # it is gone because its built-in plugin was taken out of the configuration, or because another name has its place
    is_not_configured: bool = False
    # ... which one that is, "" where it is not known; None where it has its place
    lost_to: str | None = None
    # it is stopped although its last plugin is connected, and does not answer
    is_silent: bool = False
    # Derived from the connections whenever they change; read many times by every allocation.
    # the newest connection, to which calls go
    endpoint: int | None = None
    options: PluginOptions = NO_OPTIONS
    # the current list: of the newest connection of which one was accepted, else the last one known
    _reported: ListedDevices = NO_DEVICES
    # ... and the damped devices that it has left out
    listed: ListedDevices = NO_DEVICES
    devices: Mapping[str, Device] = field(default_factory=lambda: NO_DEVICES.devices)
    # a connected plugin has sent its list; without one no device counts as healthy
    is_live: bool = False
    _deadlines: Deadlines = field(init=False)
    _identities: KnownIdentities = field(init=False)

    def __post_init__(self, flapping: FlapDampingLimits | None, deadlines: Deadlines | None) -> None:
        self.flap_damping = FlapDamping(flapping or FlapDampingLimits())
        self._deadlines = deadlines or Deadlines()
        self._identities = KnownIdentities(self.holders)

    # -- changes ----------------------------------------------------------------------------------------------------

    def cordon(self, ids: frozenset[str]) -> None:
        """All cordons: of single devices, or of physical ones with all that is listed or held of them."""
        self.cordons = ids
        self._derive()

    def connect(self, endpoint: int, options: PluginOptions, socket: str = "", *, settles_at: float = 0.0) -> None:
        """settles_at: until when its list is waited for, where its end was meant and nothing but that was shown."""
        if self.is_not_configured:
            self.settle_until = settles_at
        self.connections.live.append(Connection(endpoint, options, socket))
        self.state, self.grace_ends_at = EndpointState.RUNNING, None
        self.is_not_configured = self.is_silent = False
        self.lost_to = None
        self._derive()

    def list(self, endpoint: int, listed: ListedDevices, now: float) -> bool:
        """A complete list was received; of a refused one the list before it stays. Returns whether it changed anything."""
        connection = self.connections.find(endpoint)
        if connection is None:
            return False
        was_live, was_settling = self.is_live, self.settle_until is not None
        connection.is_awaited, connection.refusal = False, listed if listed.is_refused else None
        if not listed.is_refused:
            connection.listed = listed
            connection.has_listed_devices |= bool(listed.ids)
        if endpoint in self.connections.silent:
            return False
        current = self._current_list()
        is_changed = current != self._reported
        if is_changed:
            self.flap_damping.record(self._reported, current, now)
            self._deadlines.set("damping", self.name, self.flap_damping.next_deadline())
        self._derive()
        self.settle_until = None
        return is_changed or was_settling or not was_live

    def kept_sizes(self, besides: int | None = None, *, besides_older: bool = False) -> tuple[Size, ...]:
        """Of the lists that are kept, those of older connections among them. besides: without that connection's; besides_older:
        without those of the connections before it, either.
        """
        kept = self.connections.kept(besides, besides_older=besides_older)
        sizes = tuple(size for c in kept for size in c.sizes)
        is_replaced = besides is not None and besides not in self.connections.silent
        if is_replaced or any(c.listed is not None and c.listed.devices is self._reported.devices for c in kept):
            return sizes
        # else the last list known, which the next one replaces; of a plugin that is gone it gives way to those of living ones
        is_gone = not self.connections.live and not self.connections.silent
        count = sum(i in self._reported.devices for i in self._named()) if is_gone else len(self._reported.ids)
        return (*sizes, self._reported.size.of(count))

    def latest(self, endpoint: int) -> ListedDevices:
        """The latest list of that connection, or what stands for a refused one; before its first one, that of the resource."""
        connection = self.connections.find(endpoint)
        if connection is not None and connection.refusal is not None:
            return connection.refusal
        return self._reported if connection is None or connection.listed is None else connection.listed

    def end_damping(self, now: float) -> bool:
        """Whether damping has ended for a device, by time."""
        has_ended = self.flap_damping.expire(now)
        self._deadlines.set("damping", self.name, self.flap_damping.next_deadline())
        if has_ended:
            self._derive()
        return has_ended

    def disconnect(self, endpoint: int, now: float, *, is_configured: bool = True, is_silent: bool = False) -> bool:
        """A connection ended. Returns whether this changed anything; the end of a replaced connection does not.

        is_configured: False where a built-in plugin was ended because nothing configures the resource any more. is_silent: the
        plugin only does not answer; its lists are kept, and count once it is connected again, or ends.
        """
        connection = self.connections.find(endpoint)
        if connection is None:
            return False
        before = (self.endpoint, self.listed, self.is_live, self.connections.sockets())
        was_silent = self.connections.silent.pop(endpoint, None) is not None
        if is_silent:
            self.connections.silent[endpoint] = connection
        if was_silent:
            self._derive()
            return not self.connections.live
        self.connections.live.remove(connection)
        self._derive()
        if not self.connections.live and (is_configured or not self.unconfigured()):
            self._stop(now)
        if not self.is_live and self._settles_at is not None and now < self._settles_at:
            # Shortly after a restart many plugins recreate their socket and register again: keep waiting.
            self.settle_until = self._settles_at
        return before != (self.endpoint, self.listed, self.is_live, self.connections.sockets())

    def is_replaced(self, settles_at: float) -> None:
        """Another built-in plugin takes the place of the one that serves it: as after a restart, it is waited for until then."""
        if self.is_live and self.is_built_in:
            self._settles_at = settles_at

    def unconfigured(self) -> bool:
        """Nothing configures it any more: where a built-in plugin served it last, it is gone without a grace period.

        Returns whether this changed anything; while a plugin is connected it does not.
        """
        if self.connections.live or not self.is_built_in or self.is_not_configured:
            return False
        self.settle_until = self._settles_at = None
        self.expire()
        self.is_not_configured = True
        return True

    def displaced(self, by: str) -> None:
        """Its place is another name's: its plugins do not count any more, and it is gone without a grace period."""
        self.connections.clear()
        self.settle_until = self._settles_at = None
        self.expire()
        self.is_not_configured, self.lost_to = True, by

    def expire(self) -> None:
        """The grace period has ended: forget the devices (held ones are shown as missing)."""
        self.state, self.grace_ends_at = EndpointState.GONE, None
        self._reported, self.flap_damping = NO_DEVICES, FlapDamping(self.flap_damping.limits)
        self._deadlines.set("damping", self.name, None)
        self._derive()

    def forgotten(self) -> None:
        """It is not known any more: nothing of it changes by time."""
        for what in ("grace", "settling", "damping"):
            self._deadlines.set(what, self.name, None)

    def released(self) -> None:
        """A device is held no more: it may go by its own ID again, and whoever gets it next has it as it is listed then."""
        self._identities.released()
        if self.listed.has_aliases or self.listed.has_identities:
            self._derive()

    def remember(self, identities: Mapping[str, Identity]) -> None:
        """What held and cordoned devices are, from before a restart."""
        self._identities.remember(identities)

    def restored(self, now: float, settles_at: float) -> None:
        """Known from before a restart: wait until `settles_at` for its plugin to register, to list, or to register again."""
        if self.is_not_configured:
            return
        self._settles_at = settles_at
        if not self.is_live:
            self.settle_until = settles_at
        if self.state is not EndpointState.RUNNING and self.grace_ends_at is None:
            self._stop(now)

    # -- times ----------------------------------------------------------------------------------------------------------

    @property
    def grace_ends_at(self) -> float | None:
        return self._grace_ends_at

    @grace_ends_at.setter
    def grace_ends_at(self, at: float | None) -> None:
        self._grace_ends_at = at
        self._deadlines.set("grace", self.name, at)

    @property
    def settle_until(self) -> float | None:
        return self._settle_until

    @settle_until.setter
    def settle_until(self, at: float | None) -> None:
        self._settle_until = at
        self._deadlines.set("settling", self.name, at)

    # -- reads -----------------------------------------------------------------------------------------------------------

    @property
    def may_answer(self) -> bool:
        """Whether a plugin is connected that does not answer; its lists count again once it does."""
        return bool(self.connections.silent)

    @property
    def awaits_devices(self) -> bool:
        """Whether the connected plugin has listed no device since it registered, so a device that it lacks may still come."""
        connection = self.connections.with_list()
        return self.is_live and (connection is None or not connection.has_listed_devices)

    @property
    def is_ready(self) -> bool:
        """Whether devices may be allocated."""
        is_known = self.are_cordons_synced and not self.possible_holders and not self.awaits_others
        return self.is_live and is_known and not self.excess

    @property
    def is_built_in(self) -> bool:
        """Whether a plugin of this program serves it, or did so last."""
        return self.scope is not None and self.scope.startswith(BUILT_IN)

    def identity_of(self, device_id: str) -> Identity | None:
        """Of a listed or held device; None where no plugin of this program has said it."""
        return self._identities.of(device_id, self.devices.get(device_id))

    @property
    def says_what_devices_are(self) -> bool:
        """Whether a plugin of this program says it, or has said it of held ones; the lists of others are long."""
        return self.listed.has_identities or bool(self._identities)

    def claimed_identities(self, *, only_apart: bool = False) -> dict[str, Identity]:
        """Of held and cordoned devices, which are allocated under no other name.

        only_apart: without those that are what a connected plugin lists now.
        """
        if not self.says_what_devices_are:
            return {}
        claimed = self._apart(self._claimed()) if only_apart else self._claimed()
        found = {device_id: self.identity_of(device_id) for device_id in claimed}
        return {device_id: identity for device_id, identity in found.items() if identity is not None}

    def _named(self) -> Collection[str]:
        """Devices that are known by name without a plugin."""
        return {*self.holders, *self.reserved, *self.cordoned_ids}

    def _claimed(self) -> Set[str]:
        if ALL_DEVICES in self.cordoned_ids:
            return {*self.holders, *self.devices}
        return {*self.holders, *self.cordoned_ids} if self.cordoned_ids else self.holders.keys()

    def _apart(self, claimed: Set[str]) -> Iterable[str]:
        """Of claimed devices, those that are not what a connected plugin lists now; mostly there are none."""
        apart = self._identities.apart
        if self.is_live and self.listed is self._reported:
            return apart & claimed
        return (i for i in claimed if i in apart or self.reported(i) is None)

    def _stored(self) -> dict[str, tuple[str, ...]]:
        """What devices are whose IDs stand in allocations and cordons, held ones first."""
        if not self.says_what_devices_are:
            return {}
        named = dict.fromkeys((*sorted({*self.holders, *self.reserved}), *sorted(self.cordons)))
        found = {device_id: self.identity_of(device_id) for device_id in named}
        return {device_id: identity.tokens for device_id, identity in found.items() if identity is not None}

    def plugin_ids(self, device_ids: Iterable[str]) -> tuple[str, ...]:
        """The IDs by which the plugin lists these devices, sorted."""
        if not self._reported.has_aliases and not self._reported.has_identities:
            return tuple(sorted(device_ids))
        listed = ((device_id, self._reported.devices.get(device_id)) for device_id in device_ids)
        return tuple(sorted(device.listed_as or i if device is not None else i for i, device in listed))

    def reported(self, device_id: str) -> Device | None:
        """As a connected plugin lists it now, damped or not."""
        return self._reported.devices.get(device_id) if self.is_live else None

    @property
    def kinds(self) -> Mapping[object, tuple[Device, Sequence[str]]]:
        """Of the devices as a connected plugin lists them now; see ListedDevices."""
        return self._reported.kinds if self.is_live else NOTHING

    def free_of(self, device_ids: Iterable[str]) -> Sequence[str]:
        """Of listed devices, those that are not held, cordoned or unconfirmed."""
        out = self._reported.unconfirmed
        free = [i for i in device_ids if i not in self.holders and i not in out]
        return [i for i in free if not self.is_cordoned(i)] if self.cordons else free

    def claimed_of(self, device_ids: Iterable[str]) -> Sequence[str]:
        """Of listed devices, those that are held or cordoned."""
        return [i for i in device_ids if i in self.holders or (self.cordons and self.is_cordoned(i))]

    def parent_of(self, device_id: str) -> str:
        """The physical device of a listed one, or of a held one, as it was listed or by its ID; the ID itself without any."""
        if (device := self.devices.get(device_id)) is not None:
            return device.parent or device_id
        if past := self._past_parents.get(device_id):
            return past
        part = parent_and_number(device_id)
        return device_id if part is None else part[0]

    def scoped_parent(self, device_id: str) -> tuple[str, str] | None:
        """The physical device of a listed one, or of a held one, in its scope; None without either."""
        device = self.devices.get(device_id)
        parent = device.parent if device is not None else self.parent_of(device_id)
        return (self.scope, parent) if parent and self.scope is not None else None

    def is_cordoned(self, device_id: str) -> bool:
        if device_id in self.cordoned_ids or ALL_DEVICES in self.cordoned_ids:
            return True
        return bool(self.cordons) and device_id not in self.devices and self.parent_of(device_id) in self.cordons

    def unknown_cordons(self) -> frozenset[str]:
        """Cordons of what is neither listed nor held, nor a physical device of that."""
        aliases = (
            {alias for device in self.devices.values() for alias in device.aliases} if self.listed.has_aliases else ()
        )
        known = (self.devices, self.listed.by_parent, self.holders, aliases)
        unknown = frozenset(i for i in self.cordons if not any(i in ids for ids in known))
        return unknown.difference(map(self.parent_of, self.holders)) if unknown else unknown

    def numa_nodes(self, device_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """By device ID; devices that are not listed are left out."""
        return {i: self.devices[i].numa_nodes for i in device_ids if i in self.devices}

    def _stop(self, now: float) -> None:
        self.state, self.grace_ends_at = EndpointState.STOPPED, now + STOP_GRACE_PERIOD_SECONDS

    def _derive(self) -> None:
        newest = self.connections.newest()
        self.endpoint, self.options = newest.endpoint, newest.options
        self.is_live = any(connection.has_listed for connection in self.connections.live)
        self._reported = self._current_list()
        had_identities = self.listed.has_identities
        self.listed = self.flap_damping.with_absent(self._reported)
        before, self.devices = self.devices, self.listed.devices
        if had_identities or self._identities:
            self._identities.listed(self.devices, before, self._claimed())
        if newest.endpoint is not None:
            self.scope = intern(newest.options.scope or _OF_DOMAIN + domain_of(self.name))
        gone = [device_id for device_id in self.holders if device_id not in self.devices]
        past = {**self._past_parents, **{i: before[i].parent for i in gone if i in before}}
        self._past_parents = {device_id: past.get(device_id, "") for device_id in gone} if gone else NOTHING
        parts = [i for cordoned in self.cordons for i in self.listed.by_parent.get(cordoned, ())]
        if self.cordons and self.listed.has_aliases:
            parts += [i for i, device in self.devices.items() if not self.cordons.isdisjoint(device.aliases)]
        self.cordoned_ids = self.cordons.union(parts) if parts else self.cordons

    def _current_list(self) -> ListedDevices:
        found, refusal = self._reported, None
        if not self.connections.live and not self.connections.silent:
            return found.of_gone(self._named())
        for connection in reversed(self.connections.live):
            refusal = refusal or connection.refusal
            if connection.listed is not None:
                found = as_known(connection.listed, HeldIds(self.holders, self.reserved), self.cordons, self._stored())
                break
        if refusal is None:
            return found
        # the same again where nothing has changed
        is_same = self._reported.devices is found.devices
        return (self._reported if is_same else found).refused(refusal.id_error)
