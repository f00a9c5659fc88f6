"""How long each target is fuzzed, and what must hold of every input: no other error than ours, an end, and bounded memory.

Hypothesis knows numbers of examples, not time; so it is run in rounds, each with a seed of its own, until the time is over.
FUZZ_SECONDS: for all targets together. FUZZ_SEED: to try the same again.
"""

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import psutil
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests import examples

SECONDS = float(os.environ.get("FUZZ_SECONDS", "5"))
SEED = examples.seed("FUZZ_SEED")
# FUZZ_SECONDS are shared out among so many: test functions with the fuzz fixture.
TARGETS = 24
_EXAMPLES_A_ROUND = 50
# One input takes milliseconds: this is the verdict that it never ends.
_HANGS_AFTER_SECONDS = 20.0
_MOST_GROWTH_BYTES = 96 * 1024 * 1024


@dataclass
class Tally:
    """inputs: tried, whatever came of them."""

    inputs: int = 0
    failed: int = 0


class NoEndError(BaseException):
    """Nobody's to catch: as an Exception it would be translated like any time-out."""


class Fuzzer:
    """Call it with a check, which raises when something is wrong, and where its input comes from."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __call__(self, check: Callable[[Any], None], inputs: SearchStrategy[Any]) -> None:
        until = time.monotonic() + SECONDS / TARGETS
        rounds = 0
        before = 0
        while rounds == 0 or time.monotonic() < until:
            self._round(check, inputs, SEED + rounds)
            # what is made once is made by now
            before = before or _rss_bytes()
            rounds += 1
        growth = _rss_bytes() - before
        assert growth < _MOST_GROWTH_BYTES, f"grew by {growth} bytes in {rounds} rounds"

    def _round(self, check: Callable[[Any], None], inputs: SearchStrategy[Any], chance: int) -> None:
        @seed(chance)
        @settings(
            max_examples=_EXAMPLES_A_ROUND,
            deadline=None,
            database=None,
            # shrinking runs the check hundreds of times more: worth it, as it only happens to what is broken
            phases=(Phase.explicit, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs)
        def one_round(value: Any) -> None:
            self._tally.inputs += 1
            with ends():
                check(value)

        try:
            one_round()
        except BaseException:
            self._tally.failed += 1
            raise


@contextmanager
def ends() -> Iterator[None]:
    """The block ends, or is made to where it stands, unless that is inside a library's compiled half."""

    def hangs(number: int, frame: FrameType | None) -> NoReturn:
        raise NoEndError(f"no end in {_HANGS_AFTER_SECONDS:.0f} s")

    earlier = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, _HANGS_AFTER_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def _rss_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
