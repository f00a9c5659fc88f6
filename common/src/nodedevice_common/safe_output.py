"""Filters standard output and error, so that no secret and no control character reaches a log or a terminal.

Logs, commands, libraries and Python's tracebacks all pass it.
"""

import sys
from typing import Any, TextIO

from nodedevice_kube.masking import masked

from nodedevice_common.text import printable


class _Guarded:
    """Masks each written text by itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(printable(masked(text)))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream itself, for text that is masked already."""
    return stream._stream if isinstance(stream, _Guarded) else stream


def guard_output() -> None:
    """Guard both streams for the whole process. A closed stream stays closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _Guarded):
            setattr(sys, name, _Guarded(stream))
