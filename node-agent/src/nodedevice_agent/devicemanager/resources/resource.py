"""One resource: its plugins' connections, the devices they list, and three parts about these.

`presence` tracks whether it is served, `use` the holders of its devices, `identities` their identities. Connections have an
identity, so the end of an old plugin's connection never affects a newer one. The kubelet before 1.37 found them by resource name.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodedevice_api.extended_resources import domain_of
from nodedevice_api.names import DELIVERY_KUBELET
from nodedevice_kube.interning import intern

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.aliases import as_known
from nodedevice_agent.devicemanager.resources.connections import NO_CONNECTION, Connection, Connections, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, Device, ListedDevices, Size
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDamping, FlapDampingLimits
from nodedevice_agent.devicemanager.resources.identities import DeviceIdentities
from nodedevice_agent.devicemanager.resources.presence import Presence
from nodedevice_agent.devicemanager.resources.use import DeviceUse

_OF_DOMAIN: Final = "domain "


class Resource:
    """It has slots, and shares objects for empty fields. Hundreds of names whose plugins are gone stay for an hour, and each object
    would keep a page of memory in use.
    """

    __slots__ = (
        *("_reported", "connections", "delivery", "devices", "domain", "flap_damping", "identities"),
        *("is_attributed", "is_live", "listed", "name", "newest", "presence", "use"),
    )

    def __init__(
        self,
        name: str,
        *,
        delivery: str = "",
        flapping: FlapDampingLimits | None = None,
        deadlines: Deadlines | None = None,
    ) -> None:
        """delivery: of new allocations, a DELIVERY_* of nodedevice_api.names; what the kubelet delivers, the kubelet allocates."""
        deadlines = deadlines or Deadlines()
        self.name, self.domain, self.delivery = name, intern(domain_of(name)), delivery
        # the kubelet allocates its devices, and not this device manager
        self.is_attributed = delivery == DELIVERY_KUBELET
        self.presence = Presence(name, deadlines)
        self.use = DeviceUse()
        self.identities = DeviceIdentities(self.use)
        self.flap_damping = FlapDamping(flapping or FlapDampingLimits(), name, deadlines)
        self.connections = Connections()
        # Derived from the connections whenever they change; read many times by every allocation.
        # the newest connection, which receives calls; NO_CONNECTION while no plugin is connected
        self.newest: Connection = NO_CONNECTION
        # the current list: the newest connection's with an accepted list, else the last one known
        self._reported: ListedDevices = NO_DEVICES
        # ... and the damped devices that it omitted
        self.listed: ListedDevices = NO_DEVICES
        self.devices: Mapping[str, Device] = NO_DEVICES.devices
        # a connected plugin has sent its list; without one no device counts as healthy
        self.is_live = False

    def cordon(self, ids: frozenset[str]) -> None:
        """Set all cordons: of single devices, or of physical devices with all their listed or held parts."""
        self.use.cordons = self.use.cordoned_ids = ids
        self._derive()

    def connect(self, endpoint: int, options: PluginOptions, socket: str = "", *, settles_at: float = 0.0) -> None:
        """settles_at: see Presence.connected()."""
        self.connections.live.append(Connection(endpoint, options, socket))
        self.presence.connected(settles_at)
        self._derive()

    def list(self, endpoint: int, listed: ListedDevices, now: float) -> bool:
        """A complete list was received; a refused list leaves the one before it in force. Returns whether it changed anything."""
        connection = self.connections.find(endpoint)
        if connection is None:
            return False
        was_live, was_settling = self.is_live, self.presence.settle_until is not None
        connection.is_awaited, connection.refusal = False, listed if listed.is_refused else None
        if not listed.is_refused:
            connection.listed = listed
            connection.has_listed_devices |= bool(listed.ids)
        if connection in self.connections.silent:
            return False
        current = self._current_list()
        is_changed = current != self._reported
        if is_changed:
            self.flap_damping.record(self._reported, current, now)
        self._derive()
        if was_settling:
            self.presence.settle(None)
        return is_changed or was_settling or not was_live

    def end_damping(self, now: float) -> bool:
        has_ended = self.flap_damping.expire(now)
        if has_ended:
            self._derive()
        return has_ended

    def disconnect(self, endpoint: int, now: float, *, is_configured: bool = True, is_silent: bool = False) -> bool:
        """A connection ended. Returns whether this changed anything. is_configured: False if the configuration lacks the resource.
        is_silent: its plugin does not respond; its lists are kept, and count again once it is connected again, or ends.
        """
        connection = self.connections.find(endpoint)
        if connection is None:
            return False
        before = (self.newest.endpoint, self.listed, self.is_live, self.connections.sockets())
        was_silent = self.connections.ended(connection, is_silent=is_silent)
        self._derive()
        if was_silent:
            return not self.connections.live
        if not self.connections.live and (is_configured or not self.unconfigured()):
            self.presence.stopped(now)
        if not self.is_live:
            self.presence.without_list(now)
        return before != (self.newest.endpoint, self.listed, self.is_live, self.connections.sockets())

    def replaced(self, settles_at: float) -> None:
        """Another built-in plugin takes over the resource: as after a restart, its list is awaited until then."""
        if self.is_live and self.presence.is_built_in:
            self.presence.settles_at = settles_at

    def unconfigured(self) -> bool:
        """The configuration no longer names it: gone without a grace period, if a built-in plugin served it last and none is
        connected. Returns whether it is.
        """
        if self.connections.live or not self.presence.is_built_in or self.presence.is_not_configured:
            return False
        self.presence.not_configured()
        self._forget_devices()
        return True

    def displaced(self, by: str) -> None:
        """Another name took its place: its plugins no longer count, and it is gone without a grace period."""
        self.connections.clear()
        self.presence.not_configured(lost_to=by)
        self._forget_devices()

    def expire(self) -> None:
        """The grace period has ended: forget the devices (held ones are shown as missing)."""
        self.presence.gone()
        self._forget_devices()

    def _forget_devices(self) -> None:
        self.flap_damping.clear()
        self._reported = NO_DEVICES
        self._derive()

    def forgotten(self) -> None:
        """Cancel its timers."""
        self.presence.forgotten()
        self.flap_damping.clear()

    def released(self) -> None:
        """A device was released: it may have its own ID again, and its next holder uses the sharing of the current list."""
        self.identities.released()
        if self.listed.has_aliases or self.listed.has_identities:
            self._derive()

    def kept_sizes(self, besides: int | None = None, *, besides_older: bool = False) -> tuple[Size, ...]:
        """Sizes of the kept lists, including older connections. besides, besides_older: see Connections.kept()."""
        kept = self.connections.kept(besides, besides_older=besides_older)
        sizes = tuple(size for c in kept for size in c.sizes)
        is_replaced = besides is not None and all(c.endpoint != besides for c in self.connections.silent)
        if is_replaced or any(c.listed is not None and c.listed.devices is self._reported.devices for c in kept):
            return sizes
        # else the last list known, which the next one replaces; after its plugin has gone it yields to lists of live plugins
        is_gone = not self.connections.live and not self.connections.silent
        count = sum(i in self._reported.devices for i in self.use.named()) if is_gone else len(self._reported.ids)
        return (*sizes, self._reported.size.of(count))

    def latest(self, endpoint: int) -> ListedDevices:
        """The latest list of that connection, or the placeholder of a refused one; before its first list, that of the resource."""
        connection = self.connections.find(endpoint)
        if connection is not None and connection.refusal is not None:
            return connection.refusal
        return self._reported if connection is None or connection.listed is None else connection.listed

    @property
    def may_answer(self) -> bool:
        """Whether a connected plugin does not respond; its lists count again once it does."""
        return bool(self.connections.silent)

    @property
    def awaits_devices(self) -> bool:
        """Whether the connected plugin has listed no device since it registered, so a missing device may still come."""
        connection = self.connections.with_list()
        return self.is_live and (connection is None or not connection.has_listed_devices)

    @property
    def is_ready(self) -> bool:
        use = self.use
        is_known = use.are_cordons_synced and not use.possible_holders and not self.presence.awaits_others
        return self.is_live and is_known and not use.excess

    def plugin_ids(self, device_ids: Iterable[str]) -> tuple[str, ...]:
        """The plugin's own IDs of these devices, sorted."""
        if not self._reported.has_aliases and not self._reported.has_identities:
            return tuple(sorted(device_ids))
        listed = ((device_id, self._reported.devices.get(device_id)) for device_id in device_ids)
        return tuple(sorted(device.listed_as or i if device is not None else i for i, device in listed))

    def reported(self, device_id: str) -> Device | None:
        """The device as a connected plugin lists it now, damped or not."""
        return self._reported.devices.get(device_id) if self.is_live else None

    def scoped_parent(self, device_id: str) -> tuple[str, str] | None:
        """The physical device of a listed or held device, in its scope; None without either."""
        device, scope = self.devices.get(device_id), self.presence.scope
        parent = device.parent if device is not None else self.use.parent_of(device_id)
        return (scope, parent) if parent and scope is not None else None

    def numa_nodes(self, device_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """By device ID; devices that are not listed are left out."""
        return {i: self.devices[i].numa_nodes for i in device_ids if i in self.devices}

    def _derive(self) -> None:
        newest, self.newest = self.newest, self.connections.newest()
        self.is_live = any(connection.has_listed for connection in self.connections.live)
        self._reported = self._current_list()
        before, self.listed = self.listed, self.flap_damping.with_absent(self._reported)
        self.devices = self.listed.devices
        if self.newest is not newest and self.newest.endpoint is not None:
            self.presence.scope = intern(self.newest.options.scope or _OF_DOMAIN + self.domain)
        self.use.listed = self.listed
        if self.use.holders or self.use.cordons:
            self.use.follow(before)
        if self.listed.has_identities or before.has_identities or self.identities.past:
            self.identities.follow(before, self._reported, is_live=self.is_live)

    def _current_list(self) -> ListedDevices:
        found, refusal = self._reported, None
        if not self.connections.live and not self.connections.silent:
            return found.of_gone(self.use.named())
        for connection in reversed(self.connections.live):
            refusal = refusal or connection.refusal
            if connection.listed is not None:
                found = self._as_known(connection.listed)
                break
        if refusal is None:
            return found
        # the same list again if nothing has changed
        is_same = self._reported.devices is found.devices
        return (self._reported if is_same else found).refused(refusal.id_error)

    def _as_known(self, listed: ListedDevices) -> ListedDevices:
        """Rename listed devices to their held and cordoned IDs, if the list has identities or aliases."""
        if not listed.has_identities and not listed.has_aliases:
            return listed
        held = {*self.use.holders, *self.use.reserved}
        return as_known(listed, held, self.use.cordons, self.identities.stored())
