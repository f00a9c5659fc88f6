"""Whether a plugin serves a resource, and the timers for registration, grace period and plugin restart.

Source: kubelet device manager, endpoints and their stop grace period.
"""

from enum import Enum
from typing import Final

from msgspec import Struct

from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN

STOP_GRACE_PERIOD_SECONDS: Final = 300.0


class EndpointState(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Gone"


class Presence(Struct, eq=False):
    """grace_ends_at: while it is stopped, the time when its devices are forgotten. settle_until: after a restart, while the plugin
    has not listed its devices, the time until which the last published numbers stay. scope: the namespace of its parent IDs, from
    the newest plugin, also after its end; None while unknown. is_not_configured: it is gone because its built-in plugin left the
    configuration, or another name has its place. lost_to: that name, "" if unknown; None while it has its place. is_silent: it is
    stopped although its last plugin is connected, but does not respond. awaits_others: another built-in plugin has not listed yet
    since the start.
    """

    name: str
    deadlines: Deadlines
    state: EndpointState = EndpointState.STOPPED
    grace_ends_at: float | None = None
    settle_until: float | None = None
    # see Resource.replaced()
    settles_at: float | None = None
    scope: str | None = None
    is_not_configured: bool = False
    lost_to: str | None = None
    is_silent: bool = False
    awaits_others: bool = False

    @property
    def is_built_in(self) -> bool:
        """Whether a built-in plugin serves it, or did so last."""
        return self.scope is not None and self.scope.startswith(BUILT_IN)

    def forgotten(self) -> None:
        self._end_grace(None)
        self.settle(None)

    def connected(self, settles_at: float) -> None:
        """settles_at: the time until which its list is awaited, if its end was intended and not shown otherwise."""
        if self.is_not_configured:
            self.settle(settles_at)
        self.state, self.is_not_configured, self.is_silent, self.lost_to = EndpointState.RUNNING, False, False, None
        self._end_grace(None)

    def stopped(self, now: float) -> None:
        self.state = EndpointState.STOPPED
        self._end_grace(now + STOP_GRACE_PERIOD_SECONDS)

    def without_list(self, now: float) -> None:
        """Shortly after a restart many plugins recreate their socket and register again: keep waiting."""
        if self.settles_at is not None and now < self.settles_at:
            self.settle(self.settles_at)

    def gone(self) -> None:
        self.state = EndpointState.GONE
        self._end_grace(None)

    def not_configured(self, lost_to: str | None = None) -> None:
        """The resource is gone without a grace period. lost_to: the name that has its place."""
        self.settles_at = None
        self.settle(None)
        self.gone()
        self.is_not_configured, self.lost_to = True, lost_to

    def restored(self, now: float, settles_at: float, *, is_live: bool) -> None:
        """Known from before a restart: wait until `settles_at` for its plugin to register, to list, or to register again."""
        if self.is_not_configured:
            return
        self.settles_at = settles_at
        if not is_live:
            self.settle(settles_at)
        if self.state is not EndpointState.RUNNING and self.grace_ends_at is None:
            self.stopped(now)

    def _end_grace(self, at: float | None) -> None:
        self.grace_ends_at = at
        self.deadlines.set("grace", self.name, at)

    def settle(self, until: float | None) -> None:
        """Let the numbers that were published last stay until then; None: no longer."""
        self.settle_until = until
        self.deadlines.set("settling", self.name, until)
