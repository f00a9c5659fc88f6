"""List, watch, relist and staleness of one kind as a state machine. Pure: events in, requests out.

A program asks next() for a request, sends it after pause_seconds(), and reports listed(), checked(), opened(), heard(), ended() or
failed(). All times are monotonic seconds.

A watch that ended in order, or was cut, continues from the last version. A list comes first if the version is too old, if the kind
was missing, or if the policy wants a list after each failure. Other policies check: they read the store's version consistently. A
version that went back means that the store was restored from a backup; then a list replaces all objects.

A watch is stale if the API server has sent nothing over it for too long. A list does not prove that a watch works: a watch that
missed a change stays stale until a later watch brings one.

After the first new version of a watch a bookmark arrives each minute. Before it, silence proves nothing: the cache of the API
server may still be at the first version while nothing of the kind changes. A consistent read makes it catch up (CATCH_UP_SECONDS
after the watch has opened), but may reach another API server. A list with a change that the watch did not bring is a proof.
Source: k8s.io/apiserver pkg/storage/cacher, cacheWatcher.process @ 1.37.
"""

import enum
import math
from typing import Final, NamedTuple

from nodedevice_kube.api_errors import ApiError, Gone, InvalidResponse, NotFound, Silent, Unavailable, Unreachable
from nodedevice_kube.retries import spread_pause

# a bookmark a minute, and half a minute for a slow API server
SILENCE_SECONDS: Final = 90.0
# for the list and the next watch after a silence that proves nothing
GRACE_SECONDS: Final = 15.0
CATCH_UP_SECONDS: Final = 40.0
# A watch that lasted so long works even if it brought nothing: proxies end idle connections, the earliest after half a minute.
STABLE_SECONDS: Final = 20.0
_BUSY: Final = 429


class Request(enum.Enum):
    """The next request. CHECK: a consistent read of the store's version, such as a list of one object."""

    LIST = enum.auto()
    CHECK = enum.auto()
    WATCH = enum.auto()


class Policy(NamedTuple):
    """Pauses, and the request after a failure.

    first_pause_seconds: doubled for each further failure, up to the longest pause after a list, or after a check or a watch. Pauses
    are spread from half to all. relist_seconds: after so long a list is due anyway. is_listed_after_failures: a list follows each
    failure; else a check does, which costs less where lists are long.
    """

    first_pause_seconds: float
    longest_list_pause_seconds: float
    longest_watch_pause_seconds: float
    relist_seconds: float = math.inf
    is_listed_after_failures: bool = True


class ListWatch:
    """One kind, from its first list on. Create it when that list is about to be requested.

    version: to watch from, in the API server's form; "" before the first list. failures: since the last useful watch. has_brought:
    the last watch has brought a change. is_doubtful: it was silent, and a list shows whether it was blind.
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
        # opened in vain: another opened watch proves nothing
        self._is_mute = False
        # the last failure: the API server was unreachable or unavailable
        self._is_away = False
        # after a failure, until a success; at least as long as the API server asks
        self._is_pause_due = False
        self._has_list_failed = False
        self._at_least_seconds = 0.0

    # -- the next request -----------------------------------------------------------------------------------------------------

    def next(self, now: float) -> Request:
        if now >= self._list_at:
            return Request.LIST
        return Request.CHECK if self._is_check_due else Request.WATCH

    def pause_seconds(self, random_number: float) -> float:
        """random_number: from 0 to 1, a new one for each pause, so that clients spread."""
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
        """Note a list of all objects. Return whether its version went back, as after a restore from a backup.

        known_version: the highest known before the request, from writes or other kinds.
        """
        is_restored = number(version) < max(number(self.version), known_version)
        self.version, self._list_at = version, now + self._policy.relist_seconds
        self._is_check_due = self._is_pause_due = False
        return is_restored

    def checked(self, version: str, now: float, known_version: int = 0) -> bool:
        """Note the store's version. Return whether it went back, which makes a list due at once."""
        is_restored = number(version) < max(number(self.version), known_version)
        self._is_check_due = self._is_pause_due = False
        if is_restored:
            self.relist(now)
        return is_restored

    def relist(self, now: float) -> None:
        """Make a list due at once, as after a restore that another kind's list has shown."""
        self._list_at, self._is_pause_due = now, False

    def missed(self) -> None:
        """Note that a list showed a change that the last watch did not bring."""
        self._is_mute = True

    def opened(self, now: float) -> None:
        """The API server has accepted the watch."""
        self._opened_at, self.has_brought, self._is_pause_due = now, False, False
        if not self._is_mute:
            self._heard_at = now

    def heard(self, version: str, now: float) -> None:
        """Note an event or a bookmark. An older version proves nothing; the same version shows no progress."""
        progress = number(version) - number(self.version)
        if progress >= 0:
            self._heard_at, self._is_mute = now, False
        if progress > 0:
            self.version, self.has_brought, self.failures = version, True, 0

    def ended(self, now: float) -> bool:
        """Note that the API server ended the watch in order. Return whether it was useful; otherwise it counts as failed."""
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
        # A watch from the same version would fail again; without its kind all objects are gone.
        is_list_due = self._policy.is_listed_after_failures or isinstance(error, Gone | NotFound | InvalidResponse)
        # A starting API server asks for seconds with each 503, and serves a moment later: a watch need not wait so long.
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
            # Without an open watch a request failed, and the next watch may work.
            self._is_mute = opened_at is not None and not self.has_brought


def number(version: str) -> int:
    """Return a resource version as a number, as the API server orders them; 0 for any other text."""
    return int(version) if version.isdecimal() and len(version) < 20 else 0
