"""What is told in the log of Xids, however many there are: each kind at once, then once a minute at most, with their number."""

from dataclasses import dataclass

_PAUSE_SECONDS = 60.0
# of one GPU and one Xid; far more kinds than there are
_MOST_KINDS = 1000


@dataclass(slots=True)
class _Kind:
    told_at: float
    untold: int = 0


class XidStorms:
    """Pure: time comes in."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def seen(self, uuid: str, xid: int, count: int, now: float) -> int:
        """How many to tell of now, those that were not told of before included; 0: none."""
        kind = self._kinds.get((uuid, xid))
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[(uuid, xid)] = _Kind(now)
            return count
        kind.untold += count
        if now - kind.told_at < _PAUSE_SECONDS:
            return 0
        told, kind.told_at, kind.untold = kind.untold, now, 0
        return told
