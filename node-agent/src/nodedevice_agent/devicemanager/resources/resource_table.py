"""All resources of a node by name, with their plugins, cordons, timers and the state that survives a restart."""

from collections.abc import Callable, Collection, Iterable, Mapping

from nodedevice_api.names import DELIVERY_KUBELET

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import NO_CORDONS, Cordon, Cordons
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.list_limit import ListLimit
from nodedevice_agent.devicemanager.resources.preference import Preference
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource

# After a restart, the time for which the last published numbers stay while plugins have not listed their devices yet.
SETTLE_SECONDS = 10.0


# resource name, and its scope: whether the configuration names it
IsConfigured = Callable[[str, str], bool]


class ResourceTable:
    """See DeviceManager for the parameters."""

    def __init__(
        self,
        marks: Marks,
        deadlines: Deadlines,
        *,
        waits_for_cordons: bool,
        flapping: FlapDampingLimits | None,
        delivery: str,
        is_attributed: Callable[[str], bool] | None,
        make_list_limit: Callable[[Mapping[str, Resource]], ListLimit],
    ) -> None:
        self.by_name: dict[str, Resource] = {}
        self.list_limit = make_list_limit(self.by_name)
        self.preference = Preference(self.by_name, deadlines)
        self._delivery, self.is_attributed = delivery, is_attributed
        self._marks = marks
        self._deadlines = deadlines
        # by resource name, including resources without a registration since the restart; without empty ones
        self.cordons: dict[str, Cordons] = {}
        self._waits_for_cordons = waits_for_cordons
        self._flapping = flapping
        # by resource name and scope: whether the configuration names it; true until that is known
        self._is_configured: IsConfigured = lambda name, scope: True

    def add(self, name: str) -> Resource:
        if name not in self.by_name:
            is_attributed = self.is_attributed is not None and self.is_attributed(name)
            delivery = DELIVERY_KUBELET if is_attributed else self._delivery
            new = Resource(name, delivery=delivery, flapping=self._flapping, deadlines=self._deadlines)
            new.use.are_cordons_synced = not self._waits_for_cordons
            new.cordon(self.cordons.get(name, NO_CORDONS).device_ids)
            self.by_name[name] = new
        return self.by_name[name]

    def is_disconnected(self, name: str) -> bool:
        """Whether it is known, and no plugin serves it."""
        return name in self.by_name and self.by_name[name].presence.state is not EndpointState.RUNNING

    def listed(self, resource: Resource, endpoint: int, listed: ListedDevices, now: float) -> bool:
        """A complete device list was received. Returns whether it changed anything; else nothing is marked."""
        is_changed = resource.list(endpoint, self.list_limit.accepted(resource, endpoint, listed), now)
        self.list_limit.noted(resource)
        if listed.by_parent or listed.has_identities:
            self._marks.are_devices_compared = True
        if is_changed:
            self._marks.saved_and_changed([resource.name])
            if resource.name in self.preference.awaited:
                self._marks.freed(self.preference.listed(resource.name))
            self._marks.are_calls_due = True
        return is_changed

    def is_list_awaited(self, name: str, endpoint: int) -> bool:
        """Whether the refused list of that connection is to be read again, as it fits now."""
        return name in self.by_name and self.by_name[name].connections.is_awaited(endpoint)

    def disconnected(self, name: str, endpoint: int, now: float, *, is_silent: bool = False) -> None:
        """A plugin's stream ended, or the plugin does not respond (is_silent) until `connected`. The end of the last connection
        makes all devices unhealthy and starts the grace period.
        """
        resource = self.by_name.get(name)
        if resource is None:
            return
        is_configured = self._is_configured(name, resource.presence.scope or "")
        is_changed = resource.disconnect(endpoint, now, is_configured=is_configured, is_silent=is_silent)
        self.list_limit.noted(resource)
        # the last list stays known, so the sizes stay; but a refused list of an older connection may take its place
        self.list_limit.has_shrunk = True
        if is_changed:
            resource.presence.is_silent = is_silent and resource.presence.state is EndpointState.STOPPED
            self._marks.saved_and_changed([name])

    def displaced(self, names: Collection[str], by: str) -> None:
        """Their place passed to another name, "" if there were too many names; no grace period applies."""
        for name in names:
            self.by_name[name].displaced(by)
        self._gone(names)

    def _gone(self, names: Collection[str]) -> None:
        for name in names:
            self.list_limit.noted(self.by_name[name])
        self._marks.saved_and_changed(names)

    def cordoned(self, name: str, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """Set all cordons of the NodeDevice with that UID, by device ID. uid: "" if it does not exist; the last ones stay then."""
        resource = self.by_name.get(name)
        if resource is None:
            return
        before = self.cordons.pop(name, NO_CORDONS)
        after = before.seen(uid, in_spec)
        if after.device_ids:
            self.cordons[name] = after
        is_saved = before == self.cordons.get(name, NO_CORDONS)
        if is_saved and resource.use.are_cordons_synced:
            return
        resource.use.are_cordons_synced = True
        resource.cordon(after.device_ids)
        self._marks.changed(name)
        if not is_saved:
            self._marks.save()

    def cordons_outdated(self, name: str) -> None:
        """The cordons may have changed unseen: nothing of the resource is allocated before cordoned()."""
        if name in self.by_name:
            self.by_name[name].use.are_cordons_synced = not self._waits_for_cordons

    def configured(self, is_configured: IsConfigured, now: float, returning: Iterable[str] = ()) -> None:
        """Set the names in the configuration of built-in plugins, before these end and begin accordingly; an end without a name
        there has no grace period. returning: resources whose plugins list within moments, also if another takes over.
        """
        self._is_configured = is_configured
        for name in returning:
            if name in self.by_name:
                self.by_name[name].replaced(settles_at=now + SETTLE_SECONDS)
        named = {name: is_configured(name, each.presence.scope or "") for name, each in self.by_name.items()}
        self._gone(
            [name for name, is_named in sorted(named.items()) if not is_named and self.by_name[name].unconfigured()]
        )

    def ranked(self, ranks: Mapping[str, int], awaited: Collection[str], now: float) -> None:
        """See Preference.ranked()."""
        if self.preference.ranked(ranks, awaited, now):
            self._marks.claims()

    def tick(self, now: float) -> None:
        """Time has passed: grace periods end, a restart has settled, or the damping of a device has ended."""
        for name, resource in self.by_name.items():
            presence = resource.presence
            if presence.settle_until is not None and presence.settle_until <= now:
                presence.settle(None)
                self._marks.publish(name)
                self._marks.claims()
            if presence.grace_ends_at is not None and presence.grace_ends_at <= now:
                resource.expire()
                self._gone([name])
            if resource.end_damping(now):
                self._marks.saved_and_changed([name])
        if waited := self.preference.due(now):
            self._marks.freed(waited)
            self._marks.claims()

    def restore(self, known: Checkpoint, now: float) -> None:
        """Restore the state from before the restart, except the allocations."""
        for name, uids in known.possible_holders.items():
            self.add(name).use.possible_holders = frozenset(uids)
        names = dict.fromkeys(known.registered) | dict.fromkeys(a.resource_name for a in known.allocations)
        for name in names:
            # Includes plugins that registered while the API was read: they may not have listed yet, or may register once more.
            resource = self.add(name)
            resource.presence.restored(now, now + SETTLE_SECONDS, is_live=resource.is_live)
        for name, sizes in known.part_sizes.items():
            self.add(name).use.part_sizes = dict(sizes)
        for name in known.gone:
            # its NodeDevice may exist, and shows pods that request it
            self.add(name).expire()
        for name, scope in known.scopes.items():
            if name in self.by_name and self.by_name[name].presence.scope is None:
                self.by_name[name].presence.scope = scope

    def registered(self) -> dict[str, tuple[str, ...]]:
        """The checkpoint's data: healthy devices by resource, except Gone ones without allocations."""
        return {
            name: resource.listed.healthy_ids if resource.is_live else ()
            for name, resource in self.by_name.items()
            if resource.presence.state is not EndpointState.GONE or resource.use.holders
        }

    def possible_holders_are(self, found: Mapping[str, frozenset[str]]) -> None:
        """Set the possible holders by resource name. A resource without any is free."""
        for name, uids in found.items():
            self.by_name[name].use.possible_holders = uids
            self._marks.save()
            self._marks.publish(name)
            if not uids:
                self._marks.freed([name])
