"""All resources of a node, by name: how one comes to be known, its cordons, what time changes, what survives a restart."""

from collections.abc import Callable, Iterable, Mapping

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import NO_CORDONS, Cordon, Cordons
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource

# After a restart, how long the last published numbers stay while plugins have not listed their devices yet.
SETTLE_SECONDS = 10.0


# resource name, and its scope: whether the configuration names it
IsConfigured = Callable[[str, str], bool]


class ResourceTable:
    """waits_for_cordons: nothing of a resource is allocated before its cordons are known. flapping: None for the default limits.

    is_attributed: by name, whether the kubelet allocates the devices of a resource; None where it allocates none.
    """

    def __init__(
        self,
        marks: Marks,
        deadlines: Deadlines,
        *,
        waits_for_cordons: bool,
        flapping: FlapDampingLimits | None,
        is_attributed: Callable[[str], bool] | None,
    ) -> None:
        self.by_name: dict[str, Resource] = {}
        self.is_attributed = is_attributed
        self._marks = marks
        self._deadlines = deadlines
        # by resource name, also of resources that no plugin has registered since the restart; without empty ones
        self.cordons: dict[str, Cordons] = {}
        self._waits_for_cordons = waits_for_cordons
        self._flapping = flapping
        # by resource name and scope: whether the configuration names it; so until that is known
        self._is_configured: IsConfigured = lambda name, scope: True

    def add(self, name: str) -> Resource:
        """The resource of that name, which is known from now on."""
        if name not in self.by_name:
            is_attributed = self.is_attributed is not None and self.is_attributed(name)
            new = Resource(name, is_attributed=is_attributed, flapping=self._flapping, deadlines=self._deadlines)
            new.use.are_cordons_synced = not self._waits_for_cordons
            new.cordon(self.cordons.get(name, NO_CORDONS).device_ids)
            self.by_name[name] = new
        return self.by_name[name]

    def cordoned(self, resource: Resource, uid: str, in_spec: Mapping[str, Cordon]) -> None:
        """The cordons in the NodeDevice of that UID; uid "" where there is none."""
        before = self.cordons.pop(resource.name, NO_CORDONS)
        after = before.seen(uid, in_spec)
        if after.device_ids:
            self.cordons[resource.name] = after
        is_saved = before == self.cordons.get(resource.name, NO_CORDONS)
        if is_saved and resource.use.are_cordons_synced:
            return
        resource.use.are_cordons_synced = True
        resource.cordon(after.device_ids)
        self._marks.changed(resource.name)
        if not is_saved:
            self._marks.save()

    def cordons_outdated(self, resource: Resource) -> None:
        """They have to be read once more."""
        resource.use.are_cordons_synced = not self._waits_for_cordons

    def is_disconnected(self, name: str) -> bool:
        """Whether it is known, and no plugin serves it."""
        return name in self.by_name and self.by_name[name].presence.state is not EndpointState.RUNNING

    # -- configuration --------------------------------------------------------------------------------------------------

    def configured(self, is_configured: IsConfigured, returning: Iterable[str], now: float) -> list[str]:
        """What the configuration names from now on. Returns the resources that are gone by that."""
        self._is_configured = is_configured
        for name in returning:
            if name in self.by_name:
                self.by_name[name].replaced(settles_at=now + SETTLE_SECONDS)
        return [
            name
            for name, found in sorted(self.by_name.items())
            if not self.is_configured(found) and found.unconfigured()
        ]

    def is_configured(self, resource: Resource) -> bool:
        """Whether the configuration names it; of use for those of built-in plugins alone."""
        return self._is_configured(resource.name, resource.presence.scope or "")

    # -- time -----------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Resource]:
        """Time has passed: a restart has settled, or the damping of a device has ended. Returns those whose grace period has."""
        expired: list[Resource] = []
        for name, resource in self.by_name.items():
            presence = resource.presence
            if presence.settle_until is not None and presence.settle_until <= now:
                presence.has_settled()
                self._marks.publish(name)
                self._marks.are_claims_due = True
            if presence.grace_ends_at is not None and presence.grace_ends_at <= now:
                resource.expire()
                expired.append(resource)
                self._marks.saved_and_changed([name])
            if resource.end_damping(now):
                self._marks.saved_and_changed([name])
        return expired

    # -- restart --------------------------------------------------------------------------------------------------------

    def restore(self, known: Checkpoint, now: float) -> None:
        """What was known before the restart, but for the allocations themselves."""
        for name, uids in known.possible_holders.items():
            self.add(name).use.possible_holders = frozenset(uids)
        names = dict.fromkeys(known.registered) | dict.fromkeys(a.resource_name for a in known.allocations)
        for name in names:
            # Also one whose plugin registered while the API was read: it may not have listed yet, or may register once more.
            resource = self.add(name)
            resource.presence.restored(now, now + SETTLE_SECONDS, is_live=resource.is_live)
        for name, sizes in known.part_sizes.items():
            self.add(name).use.part_sizes = dict(sizes)
        for name in known.gone:
            # its NodeDevice may exist, and pods that ask for it are shown there
            self.add(name).expire()
        for name, scope in known.scopes.items():
            if name in self.by_name and self.by_name[name].presence.scope is None:
                self.by_name[name].presence.scope = scope

    def registered(self) -> dict[str, tuple[str, ...]]:
        """For the checkpoint: healthy devices by resource, but no Gone one without allocations."""
        return {
            name: resource.listed.healthy_ids if resource.is_live else ()
            for name, resource in self.by_name.items()
            if resource.presence.state is not EndpointState.GONE or resource.use.holders
        }

    # -- pods that may hold devices of which nobody knows ---------------------------------------------------------------

    def possible_holders_are(self, found: Mapping[str, frozenset[str]]) -> None:
        """By resource name. A resource that no pod holds back any more is free."""
        for name, uids in found.items():
            self.by_name[name].use.possible_holders = uids
            self._marks.save()
            self._marks.publish(name)
            if not uids:
                self._marks.freed([name])
