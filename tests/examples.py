"""How many examples property tests try, and which ones. HYPOTHESIS_PROFILE chooses:

gate (default): the same few examples in each run, so that chance decides nothing about a change.
part: all examples, different ones in each run; `--hypothesis-seed` repeats a run.
"""

import os
import random
from typing import Final

from hypothesis import HealthCheck, settings

_PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE") or "gate"
_GATE_DIVISOR: Final = 4
_GATE_LEAST: Final = 15
_HYPOTHESIS_DEFAULT: Final = 100


def examples(count: int) -> int:
    """How many of `count` examples this run tries: all in a part, a quarter in the gate."""
    return count if _PROFILE == "part" else min(count, max(count // _GATE_DIVISOR, _GATE_LEAST))


def seed(variable: str, *, in_gate: int | None = None) -> int:
    """The seed of a random test, which it prints: that environment variable, or SEED, which all share; else a new one.

    in_gate: the seed of a test that is in the gate, where chance decides nothing.
    """
    given = os.environ.get(variable) or os.environ.get("SEED")
    if given:
        return int(given)
    return in_gate if in_gate is not None and _PROFILE == "gate" else random.SystemRandom().randrange(1, 2**31)


def load_profile() -> None:
    """For all tests that are imported afterwards. Raises hypothesis.errors.InvalidArgument for an unknown HYPOTHESIS_PROFILE."""
    # how long an example takes depends on what else the machine does, which says nothing about the code
    usual = settings(
        deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(_HYPOTHESIS_DEFAULT)
    )
    settings.register_profile("gate", usual, derandomize=True)
    settings.register_profile("part", usual)
    settings.load_profile(_PROFILE)
