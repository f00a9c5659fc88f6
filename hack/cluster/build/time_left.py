"""How long builds still take, by what each takes as a rule and by how the first of them went here; and a download. Pure."""

from collections.abc import Mapping

# A program that was quick, since Go had most of it compiled already, says little of the next one: so many seconds at the expected
# pace are counted with it.
_TRUST_SECONDS = 60.0
# from here on in minutes
_MINUTES_FROM = 90.0


class Forecast:
    """expected: seconds for each program, in the order in which they are built."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        self._left = dict(expected)
        self._expected_so_far = self._took_so_far = 0.0

    @property
    def seconds(self) -> float:
        """All that is not built yet, from its beginning, at the pace so far."""
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
        # at the pace so far; one that proves too quick for this program is given up
        wholes = (expected * self._pace, expected)
        rest = next((whole - elapsed for whole in wholes if whole > elapsed), None)
        if rest is not None:
            return f"{clock(elapsed)}, about {duration(rest + others)} left"
        after = f", then about {duration(others)} for the others" if others else ""
        return f"{clock(elapsed)}, longer than expected ({duration(max(wholes))}){after}"

    @property
    def _pace(self) -> float:
        """What a build takes here, for each second that was expected."""
        return (self._took_so_far + _TRUST_SECONDS) / (self._expected_so_far + _TRUST_SECONDS)


def received(done: int, total: int, before: int, elapsed: float) -> str:
    """How far a download is, as `45 of 110 MB, about 20 s left`.

    In bytes. done: so far. total: 0 of unknown size. before: of an earlier try, whose end is elapsed seconds ago.
    """
    if not total or done > total:
        return f"{done / 1e6:.0f} MB"
    speed = (done - before) / elapsed if elapsed > 0 else 0.0
    left = f", about {duration((total - done) / speed)} left" if speed else ""
    return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB{left}"


def clock(seconds: float) -> str:
    """As 0:15 or 12:03."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def duration(seconds: float) -> str:
    """As `40 s`, in tens and never none, or `4 min`."""
    if seconds < _MINUTES_FROM:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} min"
