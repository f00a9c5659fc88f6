"""Prints each step when it begins, and records its duration."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Steps:
    """command: `install` or `uninstall`, before each line."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._began = time.monotonic()
        self._took: dict[str, float] = {}

    def say(self, what: str) -> None:
        print(f"{self._command}: {what}", flush=True)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took[name] = self._took.get(name, 0.0) + time.monotonic() - began

    @property
    def summary(self) -> str:
        """Total duration so far, and each step of a second and more."""
        steps = ", ".join(f"{name} {seconds:.0f}" for name, seconds in self._took.items() if seconds >= 0.5)
        return (
            f"{time.monotonic() - self._began:.0f} s ({steps})" if steps else f"{time.monotonic() - self._began:.0f} s"
        )
