"""The shortest run that ends in the same kind of breach: steps are left out, in halves, quarters and one by one. And its report."""

from tests.robustness.host.steps import Result, Step, run

_MOST_RUNS = 300
_SHOWN = 30


def shrunk(seed: int, steps: list[Step], kind: str) -> list[Step]:
    """steps: up to the breach. Bounded: after so many runs the shortest yet is returned."""
    runs = 0
    size = len(steps) // 2
    while size >= 1 and runs < _MOST_RUNS:
        begin = 0
        while begin < len(steps) and runs < _MOST_RUNS:
            fewer = steps[:begin] + steps[begin + size :]
            runs += 1
            found = run(seed, fewer)
            if found.breach is not None and found.breach.kind == kind:
                steps = fewer[: found.at + 1]
            else:
                begin += size
        size //= 2
    return steps


def report(seed: int, steps: list[Step], result: Result) -> str:
    """For people: what happened last, and the shortest run that ends so."""
    assert result.breach is not None
    least = shrunk(seed, steps[: result.at + 1], result.breach.kind)
    again = run(seed, least)
    lines = [
        f"seed {seed}, step {result.at}: {result.breach}",
        "the last steps:",
        *result.log[-_SHOWN:],
        f"the shortest run: {again.breach}",
        *again.log,
        f"run({seed}, {least})",
    ]
    return "\n".join(lines)
