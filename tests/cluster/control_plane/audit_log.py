"""Reads the API server's audit log while it is written: one request per line."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

# time until a partly written line is complete
_AGAIN_SECONDS: Final = 0.1
_SHOWN: Final = 75


def requests(log: Path, text: str = "") -> Iterator[dict[str, Any]]:
    """Every request whose line holds that text, oldest first. The last line is left out while it is being written.

    Raises ValueError, with the place, if a line is not a request.
    """
    wanted, begin = text.encode(), 0
    with log.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                # later reads would start inside this line
                return
            if wanted in line:
                yield _decoded(log, begin, line)
            begin += len(line)


def drop_half_line(log: Path) -> None:
    """Cut off an incomplete last line of a killed process: its successor would continue that line."""
    with log.open("r+b") as file:
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)


def _decoded(log: Path, begin: int, line: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        time.sleep(_AGAIN_SECONDS)
        found = _read_again(log, begin)
    return found


def _read_again(log: Path, begin: int) -> dict[str, Any]:
    with log.open("rb") as file:
        file.seek(begin, os.SEEK_SET)
        line = file.readline().decode(errors="backslashreplace")
    try:
        found: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError as exc:
        around = line[max(0, exc.pos - _SHOWN) : exc.pos + _SHOWN]
        raise ValueError(f"{log}: the line at byte {begin} is not a request: {exc.msg} in: {around}") from exc
    return found
