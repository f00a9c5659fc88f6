"""Which call fails with which error, for how long; all cases of a program, and those that a seed draws. Pure."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.robustness.faults.calls import ERRORS

LASTS_SECONDS: Final = 3.0


@dataclass(frozen=True, order=True)
class Case:
    """lasts: so long the call fails each time; else once, in each thread that makes it before that is seen."""

    call: str
    error: str
    lasts: bool

    def __str__(self) -> str:
        return f"{self.call} {self.error} {'3s' if self.lasts else 'once'}"


def matrix(calls: Iterable[str]) -> list[Case]:
    """All cases of a program that makes these calls, sorted."""
    return sorted(
        Case(call, error, lasts) for call in set(calls) for error in ERRORS.get(call, ()) for lasts in (False, True)
    )


def drawn(cases: Sequence[Case], share: float, seed: int) -> list[Case]:
    """So many of them, at least one if there is any, in an order of chance: the same for the same seed."""
    count = min(len(cases), max(1, round(len(cases) * share)))
    return random.Random(seed).sample(cases, count)
