"""Logs events that another program can cause at any rate: a bounded number of lines, and counts of the rest."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nodedevice_common.pacing import TokenBucket

# of an event about one subject
SUBJECT_AT_ONCE: Final = 8
_SUBJECT_PER_SECOND: Final = 0.1
# of an event about all subjects together
EVENT_AT_ONCE: Final = 64
_EVENT_PER_SECOND: Final = 0.2
# a forgotten subject has all its lines again; the lines of the event stay bounded
_MAX_SUBJECTS: Final = 256
_SUM_SECONDS: Final = 10.0
_MAX_NAMED: Final = 8


class PacedLog:
    """Events are constant texts. Counts are logged every ten seconds if an event loop runs, or by flush()."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._events: dict[str, TokenBucket] = {}
        self._subjects: dict[tuple[str, str], TokenBucket] = {}
        # events without a line, by subject
        self._left_out: dict[str, Counter[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def log(self, level: int, event: str, subject: str, **fields: object) -> None:
        """subject: such as a resource name; it is not a field of the log."""
        if self._may_log(event, subject):
            self._log.log(level, event, extra=fields)
            return
        counts = self._left_out.setdefault(event, Counter())
        counts[subject if subject in counts or len(counts) < _MAX_NAMED else "others"] += 1
        if self._timer is None:
            # without a loop, the caller calls flush()
            with suppress(RuntimeError):
                self._timer = asyncio.get_running_loop().call_later(_SUM_SECONDS, self.flush)

    def flush(self) -> None:
        """Log how many events have no line of their own."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for event, counts in self._left_out.items():
            extra = {"line": event, "count": counts.total(), "subjects": dict(counts)}
            self._log.warning("lines left out of the log: there were too many of one event", extra=extra)
        self._left_out.clear()

    def _may_log(self, event: str, subject: str) -> bool:
        now = self._clock()
        of_event = self._events.setdefault(event, TokenBucket(_EVENT_PER_SECOND, EVENT_AT_ONCE, now))
        key = event, subject
        of_subject = self._subjects.pop(key, None) or TokenBucket(_SUBJECT_PER_SECOND, SUBJECT_AT_ONCE, now)
        self._subjects[key] = of_subject
        if len(self._subjects) > _MAX_SUBJECTS:
            del self._subjects[next(iter(self._subjects))]
        return of_subject.take(now) and of_event.take(now)
