"""Limits how often an agent writes its NodeDevices, and chooses the next one.

A write beyond the budget waits and then has the newest state, so the last state always arrives.
"""

from collections.abc import Callable, Collection

from nodedevice_common.pacing import TokenBucket

# The budget of one object.
OBJECT_WRITES_PER_SECOND = 5.0
OBJECT_WRITES_AT_ONCE = 20
# The budget of all objects of an agent.
AGENT_WRITES_PER_SECOND = 40.0
AGENT_WRITES_AT_ONCE = 40
# So many of an object's writes at once are reserved for losses: a gain never delays the loss after it.
_KEPT_FOR_LOSSES = 1
# One write in so many goes to the object that has waited longest: repeated losses of some plugins do not delay the gains of
# others for long.
_FAIR_TURN = 4


class WriteShare:
    """The share of one object in the budget. on_turn: called when it may write, after it had to wait.

    is_loss: its next write takes devices away. is_bulk: its next write is the first one, or reports that the plugin has gone:
    hundreds of plugins may do so at once. has_turn: it may write once. number: higher for what came later.
    """

    def __init__(self, now: float, on_turn: Callable[[], None], number: int = 0) -> None:
        self.on_turn = on_turn
        self.number = number
        self.is_loss = self.is_bulk = False
        self.has_turn = False
        # the number of its last write among all of the agent's
        self.last_turn = 0
        self._bucket = TokenBucket(OBJECT_WRITES_PER_SECOND, OBJECT_WRITES_AT_ONCE, now)

    def wait_seconds(self, now: float) -> float:
        return self._bucket.wait_seconds(now, keep=0 if self.is_loss else _KEPT_FOR_LOSSES)

    def spend(self, now: float) -> None:
        self._bucket.reserve(now)


class WriteBudget:
    def __init__(self, now: float) -> None:
        self._bucket = TokenBucket(AGENT_WRITES_PER_SECOND, AGENT_WRITES_AT_ONCE, now)
        self._turns = 0

    def take_turn(self, waiting: Collection[WriteShare], now: float) -> WriteShare | None:
        """Choose the object that may write now, if any.

        Plugins that serve go before plugins that come or go, losses before gains, then the object with the oldest write. Among
        objects without a write the newest comes first: after a start, that is a plugin that has just registered.
        """
        ready = [share for share in waiting if share.wait_seconds(now) == 0.0]
        if not ready or not self._bucket.take(now):
            return None
        self._turns += 1
        share = min(ready, key=_in_fair_turn if self._turns % _FAIR_TURN == 0 else _in_order)
        share.last_turn, share.has_turn = self._turns, True
        share.spend(now)
        return share

    def spend(self, share: WriteShare, now: float) -> None:
        """Count one more write in the same turn."""
        self._bucket.reserve(now)
        share.spend(now)

    def wait_seconds(self, waiting: Collection[WriteShare], now: float) -> float:
        """The seconds until one of them may write; waiting: at least one."""
        return max(self._bucket.wait_seconds(now), min(share.wait_seconds(now) for share in waiting))


def _in_fair_turn(share: WriteShare) -> tuple[int, ...]:
    return share.last_turn, share.number


def _in_order(share: WriteShare) -> tuple[int, ...]:
    return share.is_bulk, not share.is_loss, share.last_turn, -share.number
