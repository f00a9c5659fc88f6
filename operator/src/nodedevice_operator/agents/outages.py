"""Whether agents that fell silent did so each for itself, or together.

Together means within a minute, as a Lease lasts one: agents that are cut off at the same moment run out up to 22 s apart, as
each renewed at a time of its own, and we look every 10 s. Many means more than a fifth of those whose life was not in doubt, and
at least two: in a cluster of up to four nodes one agent is more than a fifth, and still only one.

| agents | silent together, and still each for itself | an outage from |
|---|---|---|
| 1 to 9 | 1 | 2 |
| 10 | 2 | 3 |
| 100 | 20 | 21 |
| 5,000 | 1,000 | 1,001 |
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final

WINDOW_SECONDS: Final = 60.0
_SHARE: Final = 0.2
_FEWEST: Final = 2


def fallen_together(silent_since: Mapping[str, float], agents: int) -> frozenset[str]:
    """Nodes whose agents fell silent within a minute of too many others.

    silent_since: by node, in monotonic seconds. agents: how many there are, these among them.
    """
    moments = sorted(silent_since.values())
    return frozenset(
        node
        for node, moment in silent_since.items()
        if _is_many(
            bisect_right(moments, moment + WINDOW_SECONDS) - bisect_left(moments, moment - WINDOW_SECONDS), agents
        )
    )


def _is_many(count: int, agents: int) -> bool:
    return count >= _FEWEST and count > agents * _SHARE
