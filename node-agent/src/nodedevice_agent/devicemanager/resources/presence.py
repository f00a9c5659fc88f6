"""Whether a resource is served, by whom, and what is waited for: its registration, its grace period, the restart of its plugin.

Source: kubelet device manager, endpoints and their stop grace period.
"""

from enum import Enum
from typing import Final

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN

STOP_GRACE_PERIOD_SECONDS: Final = 300.0


class EndpointState(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Gone"


class Presence:
    """Of the resource of that name. deadlines: of the device manager."""

    __slots__ = (
        "_deadlines",
        "_grace_ends_at",
        "_name",
        "_settle_until",
        "_settles_at",
        "awaits_others",
        "is_not_configured",
        "is_silent",
        "lost_to",
        "scope",
        "state",
    )

    def __init__(self, name: str, deadlines: Deadlines) -> None:
        self._name = name
        self._deadlines = deadlines
        self.state = EndpointState.STOPPED
        # while it is stopped: when its devices are forgotten
        self._grace_ends_at: float | None = None
        # after a restart, while the plugin has not listed its devices: until when the last published numbers stay
        self._settle_until: float | None = None
        self._settles_at: float | None = None
        # within what its parents are IDs, and who says so: the newest plugin, also after its end; None while it is not known
        self.scope: str | None = None
        # it is gone because its built-in plugin was taken out of the configuration, or because another name has its place
        self.is_not_configured = False
        # ... which one that is, "" where it is not known; None where it has its place
        self.lost_to: str | None = None
        # it is stopped although its last plugin is connected, and does not answer
        self.is_silent = False
        # whether another built-in plugin has not listed yet since the start
        self.awaits_others = False

    @property
    def is_built_in(self) -> bool:
        """Whether a plugin of this program serves it, or did so last."""
        return self.scope is not None and self.scope.startswith(BUILT_IN)

    # -- times ----------------------------------------------------------------------------------------------------------

    @property
    def grace_ends_at(self) -> float | None:
        return self._grace_ends_at

    @property
    def settle_until(self) -> float | None:
        return self._settle_until

    def has_settled(self) -> None:
        """The numbers that were published last stay no longer."""
        self._settle(None)

    def forgotten(self) -> None:
        """It is not known any more: nothing of it changes by time."""
        self._end_grace(None)
        self._settle(None)

    # -- changes --------------------------------------------------------------------------------------------------------

    def connected(self, settles_at: float) -> None:
        """settles_at: until when its list is waited for, where its end was meant and nothing but that was shown."""
        if self.is_not_configured:
            self._settle(settles_at)
        self.state, self.is_not_configured, self.is_silent, self.lost_to = EndpointState.RUNNING, False, False, None
        self._end_grace(None)

    def stopped(self, now: float) -> None:
        """The last connection has ended: the grace period begins."""
        self.state = EndpointState.STOPPED
        self._end_grace(now + STOP_GRACE_PERIOD_SECONDS)

    def without_list(self, now: float) -> None:
        """Shortly after a restart many plugins recreate their socket and register again: keep waiting."""
        if self._settles_at is not None and now < self._settles_at:
            self._settle(self._settles_at)

    def is_replaced(self, settles_at: float) -> None:
        """See Resource.replaced()."""
        self._settles_at = settles_at

    def gone(self) -> None:
        """The grace period has ended."""
        self.state = EndpointState.GONE
        self._end_grace(None)

    def not_configured(self, lost_to: str | None = None) -> None:
        """It is gone without a grace period. lost_to: the name that has its place."""
        self._settles_at = None
        self._settle(None)
        self.gone()
        self.is_not_configured, self.lost_to = True, lost_to

    def restored(self, now: float, settles_at: float, *, is_live: bool) -> None:
        """Known from before a restart: wait until `settles_at` for its plugin to register, to list, or to register again."""
        if self.is_not_configured:
            return
        self._settles_at = settles_at
        if not is_live:
            self._settle(settles_at)
        if self.state is not EndpointState.RUNNING and self._grace_ends_at is None:
            self.stopped(now)

    def _end_grace(self, at: float | None) -> None:
        self._grace_ends_at = at
        self._deadlines.set("grace", self._name, at)

    def _settle(self, until: float | None) -> None:
        self._settle_until = until
        self._deadlines.set("settling", self._name, until)
