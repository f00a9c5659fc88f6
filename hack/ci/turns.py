"""Chooses the part whose turn it is: by the number of commits; without the history, by the day."""

import subprocess
import time
from typing import Final

from hack.ci.parts import ROOT, Parts, turn

_SECONDS_A_DAY: Final = 86_400


def whose(parts: Parts) -> str:
    """The name of a part."""
    commits = _commits()
    return turn(tuple(parts.parts), _today() if commits is None else commits)


def describe(parts: Parts, due: list[str]) -> str:
    """One line with the parts and the reason."""
    commits = _commits()
    why = f"day {_today()}, as the history is incomplete" if commits is None else f"commit {commits}"
    also = f"; also, as they fail on main: {', '.join(due[1:])}" if due[1:] else ""
    return f"part: {due[0]} ({why}, of {len(parts.parts)} parts){also}"


def _commits() -> int | None:
    """None in a shallow clone, or without a clone."""
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return None
    count = _git("rev-list", "--count", "HEAD")
    return int(count) if count.isdigit() else None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _today() -> int:
    return int(time.time()) // _SECONDS_A_DAY
