"""One resource: the plugins that are connected for it, the devices they list, and what an administrator took out.

Source: kubelet device manager, endpoints and their stop grace period. Connections have an identity, so that the end of an old
plugin never hurts a newer one (the kubelet before 1.37 looked them up by resource name).
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Container as Membership
from dataclasses import dataclass
from enum import Enum

from nodedevice_api.names import ALL_DEVICES

from nodedevice_agent.devicemanager.devices import NO_DEVICES, Device, ListedDevices
from nodedevice_agent.devicemanager.flap_damping import FlapDamping, FlapDampingLimits

STOP_GRACE_PERIOD_SECONDS = 300.0


class EndpointState(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Gone"


@dataclass(frozen=True, slots=True)
class PluginOptions:
    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


@dataclass(slots=True)
class _Connection:
    endpoint: int
    options: PluginOptions
    listed: ListedDevices | None = None


class Resource:
    """Mutable state of one resource; only the device manager changes it."""

    def __init__(
        self, name: str, *, are_cordons_synced: bool = True, flapping: FlapDampingLimits | None = None
    ) -> None:
        self.name = name
        self.flap_damping = FlapDamping(flapping or FlapDampingLimits())
        # False until the administrator's cordons have been read once: nothing is given out before
        self.are_cordons_synced = are_cordons_synced
        self.stopped_at: float | None = None
        self.cordoned_ids: frozenset[str] = frozenset()
        # reserved by an allocation in flight: device ID to pod UID
        self.reserved: dict[str, str] = {}
        # after a restart: until when the last published numbers hold while the plugin is awaited
        self.settle_until: float | None = None
        self._settles_at: float | None = None
        self._connections: list[_Connection] = []
        self._last_listed = NO_DEVICES
        self._is_gone = False
        # What every allocation reads, derived from the connections whenever they change.
        # the connection that is asked: the newest
        self.endpoint: int | None = None
        self.options = PluginOptions()
        # the list in force: of the newest connection that has sent one, else the last one known
        self.listed = NO_DEVICES
        # a connected plugin has sent its list; without one no device counts as healthy
        self.is_live = False

    # -- what happens -----------------------------------------------------------------------------------------------

    def connect(self, endpoint: int, options: PluginOptions) -> None:
        self._connections.append(_Connection(endpoint, options))
        self.stopped_at = None
        self._is_gone = False
        self._derive()

    def list(self, endpoint: int, listed: ListedDevices, now: float) -> bool:
        """Take a complete list. Returns whether anything changed by it."""
        connection = self._find(endpoint)
        if connection is None:
            return False
        before, was_live, was_settling = self.listed, self.is_live, self.settle_until is not None
        connection.listed = listed
        self._derive()
        self._last_listed = self.listed
        self.settle_until = None
        if before != self.listed:
            self.flap_damping.record(before, self.listed, now)
            return True
        return was_settling or not was_live

    def disconnect(self, endpoint: int, now: float) -> bool:
        """A connection ended. Returns whether anything changed by it: not so for one that a newer replaced."""
        connection = self._find(endpoint)
        if connection is None:
            return False
        before = (self.endpoint, self.listed, self.is_live)
        self._last_listed = self.listed
        self._connections.remove(connection)
        self._derive()
        if not self._connections:
            self.stopped_at = now
        if not self.is_live and self._settles_at is not None and now < self._settles_at:
            # just after a restart many plugins make their socket anew and register again: still awaited
            self.settle_until = self._settles_at
        return before != (self.endpoint, self.listed, self.is_live)

    def expire(self) -> None:
        """The grace period has ended: the devices are forgotten (held ones show as missing)."""
        self._is_gone = True
        self._last_listed = NO_DEVICES
        self._derive()

    def restored(self, now: float, settles_at: float) -> None:
        """Known from before a restart: until then its plugin is awaited, whether it has yet to come, to list, or to come again."""
        self._settles_at = settles_at
        if not self.is_live:
            self.settle_until = settles_at
        if not self._connections and self.stopped_at is None:
            self.stopped_at = now

    # -- what is --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> EndpointState:
        if self._connections:
            return EndpointState.RUNNING
        return EndpointState.GONE if self._is_gone else EndpointState.STOPPED

    @property
    def devices(self) -> Mapping[str, Device]:
        return self.listed.devices

    @property
    def is_ready(self) -> bool:
        """Devices may be given out."""
        return self.is_live and self.are_cordons_synced

    @property
    def grace_ends_at(self) -> float | None:
        if self.stopped_at is None or self._is_gone:
            return None
        return self.stopped_at + STOP_GRACE_PERIOD_SECONDS

    def is_cordoned(self, device_id: str) -> bool:
        return device_id in self.cordoned_ids or ALL_DEVICES in self.cordoned_ids

    def is_healthy(self, device_id: str) -> bool:
        """Listed by a live plugin as healthy, and not flapping."""
        device = self.devices.get(device_id) if self.is_live else None
        return device is not None and device.healthy and device_id not in self.flap_damping.damped

    def is_usable(self, device_id: str) -> bool:
        """Healthy, and not cordoned."""
        return self.is_healthy(device_id) and not self.is_cordoned(device_id)

    def healthy_count(self) -> int:
        if not self.is_live:
            return 0
        return self._healthy_count_without(self.flap_damping.damped)

    def is_reported_healthy(self, device_id: str) -> bool:
        """The plugin's own word, last heard."""
        return self.listed.is_listed_healthy(device_id)

    def free(self, held: Membership[str]) -> tuple[str, ...]:
        """Device IDs that are healthy, not cordoned and nobody's, sorted: equal state, equal answer."""
        if not self.is_live or ALL_DEVICES in self.cordoned_ids:
            return ()
        out, reserved = self.cordoned_ids, self.reserved
        if self.flap_damping.damped:
            out = out.union(self.flap_damping.damped)
        return tuple([i for i in self.listed.healthy_ids if i not in held and i not in reserved and i not in out])

    def free_count(self, held: Collection[str]) -> int:
        """How many are free(). Of a long list of which little is held, told by those that are not."""
        if not self.is_live or ALL_DEVICES in self.cordoned_ids:
            return 0
        # to look one up takes some times as long as to pass one by
        if 8 * len(held) > len(self.listed.healthy_ids):
            return len(self.free(held))
        return self._healthy_count_without({*held, *self.reserved, *self.cordoned_ids, *self.flap_damping.damped})

    def numa_nodes(self, device_ids: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Of those that are listed."""
        devices = self.devices
        return {device_id: devices[device_id].numa_nodes for device_id in device_ids if device_id in devices}

    def _healthy_count_without(self, device_ids: Collection[str]) -> int:
        """device_ids: each once, listed or not."""
        listed = self.listed
        return len(listed.healthy_ids) - sum(map(listed.is_listed_healthy, device_ids))

    def _derive(self) -> None:
        newest = self._connections[-1] if self._connections else None
        self.endpoint = newest.endpoint if newest is not None else None
        self.options = newest.options if newest is not None else PluginOptions()
        lists = [connection.listed for connection in self._connections if connection.listed is not None]
        self.is_live = bool(lists)
        self.listed = lists[-1] if lists else self._last_listed

    def _find(self, endpoint: int) -> _Connection | None:
        return next((c for c in self._connections if c.endpoint == endpoint), None)
