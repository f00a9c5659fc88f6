"""Estimates the remaining time of builds, by usual durations and by the first builds of this run; and of a download.
Pure.
"""

from collections.abc import Mapping

# A quick build, because Go had most of it compiled already, does not predict the next one: so many seconds at the expected
# pace are counted with it.
_TRUST_SECONDS = 60.0
# in minutes from here on
_MINUTES_FROM = 90.0


class Forecast:
    """expected: seconds for each program, in the order of the builds."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._left = dict(expected)
        self._expected_so_far = self._took_so_far = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of all remaining builds, from their beginning, at the current pace."""
        return sum(self._left.values()) * self._pace

    def built(self, program: str, took: float) -> None:
        """took: seconds."""
        self._expected_so_far += self._left.pop(program)
        self._took_so_far += took

    def describe(self, program: str, elapsed: float) -> str:
        """How long `program` has been built, and how long all of them still take, as `1:20, about 4 min left`.

        elapsed: its seconds so far. If that is more than expected, the text says that the rest is unknown.
        """
        expected = self._left[program]
        others = sum(left for name, left in self._left.items() if name != program) * self._pace
        # at the current pace, unless that proves too quick for this program
        wholes = (expected * self._pace, expected)
        rest = next((whole - elapsed for whole in wholes if whole > elapsed), None)
        if rest is not None:
            return f"{clock(elapsed)}, about {duration(rest + others)} left"
        after = f", then about {duration(others)} for the others" if others else ""
        return f"{clock(elapsed)}, longer than expected ({duration(max(wholes))}){after}"

    @property
    def _pace(self) -> float:
        """Actual seconds of a build for each expected second."""
        return (self._took_so_far + _TRUST_SECONDS) / (self._expected_so_far + _TRUST_SECONDS)


def received(done: int, total: int, before: int, elapsed: float) -> str:
    """The progress of a download, as `45 of 110 MB, about 20 s left`.

    In bytes. done: so far. total: 0 if unknown. before: of an earlier try, which ended elapsed seconds ago.
    """
    if not total or done > total:
        return f"{done / 1e6:.0f} MB"
    speed = (done - before) / elapsed if elapsed > 0 else 0.0
    left = f", about {duration((total - done) / speed)} left" if speed else ""
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB{left}"


def clock(seconds: float) -> str:
    """Formats seconds as 0:15 or 12:03."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def duration(seconds: float) -> str:
    """Formats seconds as `40 s`, in tens and at least 10 s, or as `4 min`."""
    if seconds < _MINUTES_FROM:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} min"
