"""What follows from what one watch has brought: a list or a watch next, after which pause; and whether the watch is stale.

Stale is a watch over which the API server has sent nothing for too long: what has changed since is not known. A list is no proof
that a watch works: one that should have brought something stays stale until another one does, whatever was listed meanwhile. Times
are monotonic seconds.

Once a watch has brought a version above the one it began with, there is a bookmark each minute. Before that silence proves nothing:
the cache of the API server that serves the watch may still be at that version, as long as nobody changes that kind. A consistent
read makes it catch up, so one is made before the first bookmark is due; by then the agent's Lease has been renewed, and there is a
newer version. It may reach another API server, so it is no proof either; that a list shows a change which the watch did not bring
is one. Source: k8s.io/apiserver pkg/storage/cacher, cacheWatcher.process @ 1.37.
"""

# a bookmark a minute, and half a minute for an API server that is slow
SILENCE_SECONDS = 90.0
# for the list and the next watch after a silent one that is no proof
GRACE_SECONDS = 15.0
CATCH_UP_SECONDS = 40.0
# A watch that lasted as long works although it brought nothing: proxies end idle connections, the earliest after half a minute.
STABLE_SECONDS = 20.0
# What no watch has brought is known after this time: rarely, as a list costs the API server more than a watch that continues.
RELIST_SECONDS = 900.0


class WatchState:
    """One watch, from its first list on. Make it when that list is about to be requested.

    version: to watch from, as the API server wrote it; "" before the first list. failures: since the last watch that was of use.
    has_brought: whether the last watch has brought anything new. is_doubtful: it was silent, and a list shows whether it was blind.
    """

    def __init__(self, now: float) -> None:
        self.version = ""
        self.failures = 0
        self.has_brought = False
        self.is_doubtful = False
        self._heard_at = now
        self._list_at = now
        self._opened_at: float | None = None
        # opened in vain: another one that opens proves nothing
        self._is_mute = False

    def is_list_due(self, now: float) -> bool:
        return now >= self._list_at

    def is_stale(self, now: float) -> bool:
        return now - self._heard_at >= SILENCE_SECONDS + (0.0 if self._is_mute else GRACE_SECONDS)

    def listed(self, version: str, now: float, known_version: int = 0) -> bool:
        """All objects as of that version. Returns whether it went back: the API server's store was restored from a backup.

        known_version: the highest one that was known before the list was requested, from responses to writes.
        """
        is_restored = number(version) < max(number(self.version), known_version)
        self.version, self._list_at = version, now + RELIST_SECONDS
        return is_restored

    def missed(self) -> None:
        """A list showed a change that the last watch did not bring."""
        self._is_mute = True

    def opened(self, now: float) -> None:
        """The API server has accepted the watch."""
        self._opened_at, self.has_brought = now, False
        if not self._is_mute:
            self._heard_at = now

    def heard(self, version: str, now: float) -> None:
        """An event or a bookmark of that version. An older one proves nothing, and one as old is no progress."""
        progress = number(version) - number(self.version)
        if progress >= 0:
            self._heard_at, self._is_mute = now, False
        if progress > 0:
            self.version, self.has_brought, self.failures = version, True, 0

    def ended(self, now: float) -> bool:
        """The API server ended the watch in order. Returns whether it was of use; if not it counts as failed."""
        self._close(now)
        if self._is_mute:
            self._fail(now)
        return not self._is_mute

    def failed(self, now: float, *, is_silent: bool = False) -> None:
        """A list or a watch failed: the next attempt begins with a list. is_silent: it was given up for its silence."""
        if is_silent:
            self._opened_at, self.failures = None, 0
            self._is_mute = self._is_mute or self.has_brought
            self.is_doubtful = not self._is_mute
        else:
            self._close(now)
        self._fail(now)

    def _fail(self, now: float) -> None:
        self.failures += 1
        self._list_at = now

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
