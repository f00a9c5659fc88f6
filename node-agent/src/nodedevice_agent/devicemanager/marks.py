"""Marks that events leave to settle(): an event changes its own subject, and marks the consequences here.

Marking twice has one effect. take() returns the effects in one order: writes to disk, publications, reports, then calls to plugins,
oldest first.
"""

from collections.abc import Iterable

from msgspec import Struct

from nodedevice_agent.devicemanager.effects import Effect, PluginCall, Publish, Report, SaveCheckpoint


class Marks(Struct, eq=False):
    """The marks of one device manager, shared by its parts."""

    # resources that pods may be waiting for: by name, the UID of the pod whose own failure has freed devices; "" for any other
    awaited: dict[str, str] = {}
    # whether a plugin has named physical devices, or given identities, since the start
    are_devices_compared: bool = False
    # a use of a physical device may have begun or ended
    are_claims_due: bool = False
    # resources whose allocations have changed: those whose devices are held back for theirs show which pod has them
    shown_with: set[str] = set()
    # the kubelet's state, or the inputs of its allocations, have changed
    is_attribution_due: bool = False
    # a call about a held device may be due
    are_calls_due: bool = False
    _published: set[str] = set()
    _is_saved: bool = False
    # UIDs of pods whose allocations have changed; "" for all of them
    _durable: dict[str, None] = {}
    _reports: list[Report] = []
    _calls: list[PluginCall] = []

    def publish(self, resource_name: str) -> None:
        self._published.add(resource_name)

    def publish_all(self, resource_names: Iterable[str]) -> None:
        self._published.update(resource_names)

    def save(self) -> None:
        """The state that survives a restart has changed."""
        self._is_saved = True

    def save_durably(self, pod_uid: str = "") -> None:
        """An allocation has changed. pod_uid: its pod; "" for all of them."""
        self._durable[pod_uid] = None

    def report(self, what: Report) -> None:
        self._reports.append(what)

    def call(self, plugin_call: PluginCall) -> None:
        self._calls.append(plugin_call)

    def freed(self, resource_names: Iterable[str], but: str = "") -> None:
        """Pods that lack one of these may get it now. but: the UID of the pod whose own failure caused that."""
        for name in resource_names:
            self.awaited[name] = but if self.awaited.get(name, but) == but else ""

    def claims(self) -> None:
        """A use of a physical device may have begun or ended; has no effect if no plugin names any."""
        self.are_claims_due = self.are_devices_compared

    def changed(self, resource_name: str) -> None:
        """The resource's list has changed, or the set of its allocatable devices."""
        self._published.add(resource_name)
        self.awaited[resource_name] = ""
        self.are_claims_due = self.are_devices_compared

    def held(self, resource_names: Iterable[str]) -> None:
        """Pods received or lost devices of these resources."""
        self._published.update(resource_names)
        if self.are_devices_compared:
            self.shown_with.update(resource_names)
            self.are_claims_due = True

    def saved_and_changed(self, resource_names: Iterable[str]) -> None:
        """Mark changes of these resources that must survive a restart."""
        for name in resource_names:
            self._is_saved = True
            self.changed(name)

    def take(self) -> list[Effect]:
        effects: list[Effect] = []
        if self._durable:
            effects += [SaveCheckpoint(durable=True, pod_uid=uid) for uid in self._durable]
            self._durable.clear()
        elif self._is_saved:
            effects.append(SaveCheckpoint(durable=False))
        self._is_saved = False
        if self._published:
            effects += map(Publish, sorted(self._published))
            self._published.clear()
        if self._reports:
            effects += self._reports
            self._reports.clear()
        if self._calls:
            effects += self._calls
            self._calls.clear()
        return effects
