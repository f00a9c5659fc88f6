"""List, watch, relist and staleness of one kind as a state machine. Pure: events in, requests out.

A program asks next() what to send, sends it after pause_seconds(), and reports the result: listed(), checked(), opened(),
heard(), ended(), failed(). All times are monotonic seconds.

A watch that ended in order, or was cut, continues from the last version. A list comes first if the version is too old, if the
kind was missing, or if the policy asks for a list after each failure. Other policies check after a failure: a consistent
read of the version of the API server's store. A version that went back means that the store was restored from a backup; then
a list replaces all objects.

A watch is stale if the API server has sent nothing over it for too long: changes since then are unknown. A list does not prove
that a watch works: a watch that should have brought a change stays stale until a later watch brings one.

Once a watch has brought a version above the one it began with, there is a bookmark each minute. Before that silence proves
nothing: the cache of the API server that serves the watch may still be at that version, as long as nothing of that kind changes. A
consistent read makes it catch up (CATCH_UP_SECONDS after the watch has opened). It may reach another API server, so it proves
nothing. A list that shows a change which the watch did not bring is a proof.
Source: k8s.io/apiserver pkg/storage/cacher, cacheWatcher.process @ 1.37.
"""

import enum
import math
from typing import Final, NamedTuple

from nodedevice_kube.api_errors import ApiError, Gone, InvalidResponse, NotFound, Silent, Unavailable, Unreachable
from nodedevice_kube.retries import spread_pause

# a bookmark a minute, and half a minute for an API server that is slow
SILENCE_SECONDS: Final = 90.0
# for the list and the next watch after a silence that proves nothing
GRACE_SECONDS: Final = 15.0
CATCH_UP_SECONDS: Final = 40.0
# A watch that lasted as long works although it brought nothing: proxies end idle connections, the earliest after half a minute.
STABLE_SECONDS: Final = 20.0
_BUSY: Final = 429


class Request(enum.Enum):
    """What to send next. CHECK: a consistent read of the version of the store, such as a list of one object."""

    LIST = enum.auto()
    CHECK = enum.auto()
    WATCH = enum.auto()


class Policy(NamedTuple):
    """How often, and after what.

    first_pause_seconds: after one failure; doubled for each further one, up to longest_list_pause_seconds after a list, and
    longest_watch_pause_seconds after a check or a watch. A pause is spread from half of that to all of it.
    relist_seconds: after so long a list is due although all is well. is_listed_after_failures: a list follows each failure; else a
    check does, which costs less where lists are long.
    """

    first_pause_seconds: float
    longest_list_pause_seconds: float
    longest_watch_pause_seconds: float
    relist_seconds: float = math.inf
    is_listed_after_failures: bool = True


class ListWatch:
    """One kind, from its first list on. Make it when that list is about to be requested.

    version: to watch from, as the API server wrote it; "" before the first list. failures: since the last watch that was of use.
    has_brought: whether the last watch has brought anything new. is_doubtful: it was silent, and a list shows whether it was blind.
    """

    def __init__(self, policy: Policy, now: float) -> None:
        self._policy = policy
        self.version = ""
        self.failures = 0
        self.has_brought = False
        self.is_doubtful = False
        self._heard_at = now
        self._list_at = now
        self._opened_at: float | None = None
        # a watch failed: the store may have been restored since
        self._is_check_due = False
        # opened in vain: another one that opens proves nothing
        self._is_mute = False
        # the last failure was of an API server that could not be reached, or did not serve
        self._is_away = False
        # after a failure, until something succeeds; as long at least as the API server asks for
        self._is_pause_due = False
        self._has_list_failed = False
        self._at_least_seconds = 0.0

    # -- the next request -----------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Request:
        if now >= self._list_at:
            return Request.LIST
        return Request.CHECK if self._is_check_due else Request.WATCH

    def pause_seconds(self, random_number: float) -> float:
        """How long to wait before the next request. random_number: from 0 to 1, a new one for each pause: clients spread."""
        if not self._is_pause_due:
            return 0.0
        policy = self._policy
        longest = policy.longest_list_pause_seconds if self._has_list_failed else policy.longest_watch_pause_seconds
        pause = spread_pause(self.failures, policy.first_pause_seconds, longest, random_number)
        return max(pause, self._at_least_seconds)

    def is_stale(self, now: float) -> bool:
        return now - self._heard_at >= SILENCE_SECONDS + (0.0 if self._is_mute else GRACE_SECONDS)

    # -- results and events ------------------------------------------------------------------------------------------------

    def listed(self, version: str, now: float, known_version: int = 0) -> bool:
        """All objects as of that version. Returns whether it went back: the API server's store was restored from a backup.

        known_version: the highest one that was known before the list was requested, from responses to writes or of other kinds.
        """
        is_restored = number(version) < max(number(self.version), known_version)
        self.version, self._list_at = version, now + self._policy.relist_seconds
        self._is_check_due = self._is_pause_due = False
        return is_restored

    def checked(self, version: str, now: float, known_version: int = 0) -> bool:
        """The store is at that version. Returns whether it went back, which makes a list due at once."""
        is_restored = number(version) < max(number(self.version), known_version)
        self._is_check_due = self._is_pause_due = False
        if is_restored:
            self.relist(now)
        return is_restored

    def relist(self, now: float) -> None:
        """A list is due, without a pause: all that was known is doubtful, as after a restore that another kind's list has shown."""
        self._list_at, self._is_pause_due = now, False

    def missed(self) -> None:
        """A list showed a change that the last watch did not bring."""
        self._is_mute = True

    def opened(self, now: float) -> None:
        """The API server has accepted the watch."""
        self._opened_at, self.has_brought, self._is_pause_due = now, False, False
        if not self._is_mute:
            self._heard_at = now

    def heard(self, version: str, now: float) -> None:
        """An event or a bookmark of that version. An older version proves nothing; the same version shows no progress."""
        progress = number(version) - number(self.version)
        if progress >= 0:
            self._heard_at, self._is_mute = now, False
        if progress > 0:
            self.version, self.has_brought, self.failures = version, True, 0

    def ended(self, now: float) -> bool:
        """The API server ended the watch in order. Returns whether it was of use; if not it counts as failed."""
        self._close(now)
        self._has_list_failed = False
        if self._is_mute:
            self._fail(now, is_list_due=self._policy.is_listed_after_failures, at_least_seconds=0.0)
        return not self._is_mute

    def failed(self, error: ApiError, now: float) -> None:
        """A list, a check or a watch failed."""
        self._has_list_failed = now >= self._list_at
        was_away, self._is_away = self._is_away, isinstance(error, Unreachable | Unavailable)
        if was_away and not self._is_away:
            # the API server is back: the next pause is short again
            self.failures = 0
        if isinstance(error, Silent):
            self._opened_at, self.failures = None, 0
            self._is_mute = self._is_mute or self.has_brought
            self.is_doubtful = not self._is_mute
        else:
            self._close(now)
        # the same line of a watch again would be no better; without its kind all objects are gone
        is_list_due = self._policy.is_listed_after_failures or isinstance(error, Gone | NotFound | InvalidResponse)
        # an API server that starts asks for seconds with each 503, and serves a moment later: a watch need not wait for as long
        waits = error.status == _BUSY or (isinstance(error, Unavailable) and (is_list_due or self._has_list_failed))
        self._fail(now, is_list_due=is_list_due, at_least_seconds=error.retry_after_seconds if waits else 0.0)

    def _fail(self, now: float, *, is_list_due: bool, at_least_seconds: float) -> None:
        self.failures += 1
        self._is_check_due = self._is_pause_due = True
        self._at_least_seconds = at_least_seconds
        if is_list_due:
            self._list_at = min(self._list_at, now)

    def _close(self, now: float) -> None:
        opened_at, self._opened_at = self._opened_at, None
        self.is_doubtful = False
        if opened_at is not None and now - opened_at >= STABLE_SECONDS:
            self._is_mute, self._heard_at, self.failures = False, now, 0
        else:
            # without an open watch a request failed, and whether the next watch works is open
            self._is_mute = opened_at is not None and not self.has_brought


def number(version: str) -> int:
    """A resource version as a number, which the API server orders them by; 0 for any other text."""
    return int(version) if version.isdecimal() and len(version) < 20 else 0
