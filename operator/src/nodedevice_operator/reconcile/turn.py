"""How much of a node is written in one reconcile: an agent's token may write objects of its node without end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nodedevice_common.pacing import TokenBucket

from nodedevice_operator.informers.memory_bounds import MOST_OF_NODE

REQUESTS_PER_SECOND: Final = 10.0
# one for each NodeDevice that counts
REQUESTS_AT_ONCE: Final = MOST_OF_NODE
# the budget to wait for before it continues, so that a reconcile does not send one request at a time
_AT_LEAST: Final = 10


@dataclass(slots=True)
class Budget:
    """The budget of one node. clock: monotonic seconds."""

    clock: Callable[[], float] = time.monotonic
    _bucket: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self._bucket = TokenBucket(REQUESTS_PER_SECOND, REQUESTS_AT_ONCE, self.clock())

    def spend(self) -> None:
        self._bucket.take(self.clock())

    def wait_seconds(self) -> float:
        """How long until there is some of it again; 0 while there is."""
        now = self.clock()
        return 0.0 if self._bucket.wait_seconds(now) == 0.0 else self._bucket.wait_seconds(now, _AT_LEAST - 1)


@dataclass(slots=True)
class Turn:
    """The budget of one reconcile. must_end: whether the node must be reconciled from the beginning."""

    budget: Budget
    must_end: Callable[[], bool]
    # whether something was left undone for lack of budget
    _is_cut: bool = field(default=False, init=False)

    def is_over(self) -> bool:
        """Whether the next request has to wait for another reconcile."""
        if self.budget.wait_seconds() > 0.0:
            self._is_cut = True
        return self._is_cut or self.must_end()

    def spend(self) -> None:
        self.budget.spend()

    def wait_seconds(self) -> float | None:
        """In how many seconds to continue with the remaining work, if any."""
        return self.budget.wait_seconds() if self._is_cut else None
