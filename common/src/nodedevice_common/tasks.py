"""The tasks of a program that run as long as it does: a vital one ends the process when it fails, any other is run again.

Vital is what nodes and pods depend on: a process without it would only seem to work, and is better started again. What is only for
showing, or for one plugin, node or object, ends nothing else: its failure is logged once, counted and named at /healthz, and it is
run again after a growing pause. A test names every task and which of the two it is.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily

from nodedevice_common.pacing import Backoff
from nodedevice_common.text import shown

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# A task that ran this long is well again: its next failure starts with the first pause, and is logged.
WELL_AFTER_SECONDS: Final = 120.0
_MOST_NAMED: Final = 8

# One process is one program, as for its metrics: failures so far by task, and what fails now by task and what it is about.
_failures: Counter[str] = Counter()
_failing: dict[tuple[str, ...], str] = {}


async def vital(
    task: str, run: Callable[[], Awaitable[object]], known: type[Exception], ended: Callable[[str, str], Exception]
) -> None:
    """Run what the process cannot do without, for ever.

    Raises what `run` raises of the kind `known`, and ended(task, why) for everything else, a return included.
    """
    why, cause = "it returned", None
    try:
        await run()
    except Exception as failure:
        cause = innermost(failure)
        if isinstance(cause, known):
            raise cause from failure
        log.error("background task ended unexpectedly", extra={"task": task}, exc_info=cause)
        why = shown(f"{type(cause).__name__}: {cause}")
    raise ended(task, why) from cause


async def retried(
    task: str, run: Callable[[], Awaitable[object]], known: type[Exception] | tuple[()] = (), **about: str
) -> None:
    """Run what must end nothing else, again after each failure, until it returns or is cancelled.

    task: for the metric, so one of few names. known: failures beside OSError that are no bug, and logged without a traceback.
    about: fields for the log, such as the resource name of one plugin.
    """
    retries = _Retries(task, known, about)
    _failures[task] += 0
    try:
        while True:
            well = asyncio.get_running_loop().call_later(WELL_AFTER_SECONDS, retries.is_well)
            try:
                await run()
                return
            except Exception as failure:
                pause = retries.failed(innermost(failure))
            finally:
                well.cancel()
            await asyncio.sleep(pause)
    finally:
        retries.forget()


class _Retries:
    def __init__(self, task: str, known: type[Exception] | tuple[()], about: dict[str, str]) -> None:
        self._task = task
        self._known = (OSError, known) if known else (OSError,)
        self._about = about
        self._key = (task, *about.values())
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    def failed(self, cause: BaseException) -> float:
        """The pause before the next attempt, in seconds."""
        pause, error = self._backoff.next(), shown(str(cause) or type(cause).__name__)
        # problems of the node need no traceback; anything else is a bug
        is_known, is_news = isinstance(cause, self._known), _failing.get(self._key) != error
        log.log(
            logging.ERROR if is_news else logging.DEBUG,
            "task failed; retrying it",
            extra={"task": self._task, **self._about, "error": error, "retry_in_seconds": pause},
            exc_info=None if is_known or not is_news else cause,
        )
        _failures[self._task] += 1
        _failing[self._key] = error
        return pause

    def is_well(self) -> None:
        self._backoff.reset()
        if self.forget():
            log.info("task runs again", extra={"task": self._task, **self._about})

    def forget(self) -> bool:
        """Whether it was failing."""
        return _failing.pop(self._key, None) is not None


def problems() -> tuple[str, ...]:
    """What fails now and is tried again, one sentence each; thread-safe."""
    found = [f"{' '.join(key)} fails and is tried again: {error}" for key, error in sorted(dict(_failing).items())]
    more = (f"and {len(found) - _MOST_NAMED} more",) if len(found) > _MOST_NAMED else ()
    return (*found[:_MOST_NAMED], *more)


class TaskFailures:
    """A collector of metrics. prefix: of the program's metrics."""

    def __init__(self, prefix: str) -> None:
        self._name = f"{prefix}_task_failures"

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Failures of tasks that do not end the program, which runs them again."
        family = CounterMetricFamily(self._name, text, labels=("task",))
        for task, count in sorted(dict(_failures).items()):
            family.add_metric((task,), count)
        yield family


def innermost(error: BaseException) -> BaseException:
    """The first error of a group of tasks, and of groups in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
