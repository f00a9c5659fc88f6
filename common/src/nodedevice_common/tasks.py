"""Runs the tasks of a program. A vital task ends the process when it fails; any other task is started again.

Nodes and pods depend on vital tasks: a process without one is better restarted. Other tasks show something, or serve one plugin,
node or object. Their failures are logged once, counted and named at /healthz, and they run again after a growing pause. A test
lists every task and its kind.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from nodedevice_common.pacing import Backoff
from nodedevice_common.text import shown

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
# A task that ran so long is well: its next failure starts with the first pause, and is logged.
WELL_AFTER_SECONDS: Final = 120.0
_MOST_NAMED: Final = 8

# An older failure does not count: its object may be gone.
_CURRENT_SECONDS: Final = 600.0
_MOST_FAILING: Final = 256

# for the whole process: failures by task; and by task and subject the last failure with its time
_failures: Counter[str] = Counter()
_failing: dict[tuple[str, ...], tuple[str, float]] = {}


async def vital(
    task: str, run: Callable[[], Awaitable[object]], known: type[Exception], ends: Callable[[str], Exception]
) -> None:
    """Run a vital task until it is cancelled.

    Raises errors of the kind `known` unchanged, and ends(cause) for every other error, and for a return.
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
    raise ends(ended(task, why)) from cause


async def retried(
    task: str, run: Callable[[], Awaitable[object]], known: type[Exception] | tuple[()] = (), **about: str
) -> None:
    """Run a task again after each failure, until it returns or is cancelled.

    task: one of few names, for the metric. known: expected failures besides OSError, logged without a traceback. about: fields for
    the log, such as a resource name.
    """
    failures, backoff = _Failures(task, known, about), Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    def is_well() -> None:
        backoff.reset()
        failures.is_over()

    # from 0: a rate over time never includes the first value of a new series
    _failures.setdefault(task, 0)
    try:
        while True:
            well = asyncio.get_running_loop().call_later(WELL_AFTER_SECONDS, is_well)
            try:
                await _alone(run)
                return
            except Exception as failure:
                pause = backoff.next()
                failures.failed(innermost(failure), {"retry_in_seconds": pause})
            finally:
                well.cancel()
            await asyncio.sleep(pause)
    finally:
        failures.forget()


async def _alone(run: Callable[[], Awaitable[object]]) -> None:
    """Await it in a task of its own.

    asyncio.TaskGroup forgets that it is cancelled if one of its tasks fails at that moment (Python 3.11): a task that is to end
    would be started again.
    """
    task = asyncio.ensure_future(run())
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise
    task.result()


@contextmanager
def apart(task: str, passing: type[Exception] | tuple[type[Exception], ...] = (), **about: str) -> Iterator[None]:
    """Wrap the work for one object in a loop: a failure ends only that, and is logged once until it succeeds again.

    passing: errors that the loop handles. The rest as of `retried`.
    """
    failures = _Failures(task, (), about)
    try:
        yield
    except passing:
        raise
    except Exception as failure:
        failures.failed(innermost(failure), {})
    else:
        failures.is_over()


def log_failed_callbacks() -> None:
    """Log, count and name failures of the running event loop's callbacks as failures of tasks.

    asyncio would log a traceback each time, which could fill the disk.
    """
    asyncio.get_running_loop().set_exception_handler(_callback_failed)


def _callback_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    failure = context.get("exception")
    if not isinstance(failure, Exception):
        loop.default_exception_handler(context)
        return
    # such as "Exception in callback FileWatcher.dispatch()", followed by addresses
    what = str(context["message"]).partition("(")[0].removeprefix("Exception in callback ")
    _Failures("callback", (), {"callback": shown(what)}).failed(innermost(failure), {}, "callback failed")


class _Failures:
    """The failures of one task about one subject."""

    def __init__(self, task: str, known: type[Exception] | tuple[()], about: dict[str, str]) -> None:
        self._task = task
        self._known = (OSError, known)
        self._about = about
        self._key = (task, *about.values())

    def failed(self, cause: BaseException, more: dict[str, float], event: str = "task failed; retrying it") -> None:
        error, now = shown(str(cause) or type(cause).__name__), time.monotonic()
        before, at = _failing.get(self._key, (None, now))
        # problems of the node need no traceback; any other failure is a bug
        is_known, is_news = isinstance(cause, self._known), before != error or now - at > _CURRENT_SECONDS
        log.log(
            logging.ERROR if is_news else logging.DEBUG,
            event,
            extra={"task": self._task, **self._about, "error": error, **more},
            exc_info=None if is_known or not is_news else cause,
        )
        _failures[self._task] += 1
        _failing[self._key] = error, now
        if len(_failing) > _MOST_FAILING:
            del _failing[next(iter(_failing))]

    def is_over(self) -> None:
        if self.forget():
            log.info("task runs again", extra={"task": self._task, **self._about})

    def forget(self) -> bool:
        """Return whether it was failing."""
        return _failing.pop(self._key, None) is not None


def ended(task: str, why: str) -> str:
    """Return the last words of a process whose vital task has ended."""
    return f"the task {task} has ended ({why}), which is a bug: report it with the log; exiting for a restart"


def problems() -> tuple[str, ...]:
    """Return a sentence for each current failure. Thread-safe."""
    earliest = time.monotonic() - _CURRENT_SECONDS
    current = sorted((" ".join(key), error) for key, (error, at) in dict(_failing).items() if at >= earliest)
    found = [f"{what} fails and is tried again: {error}" for what, error in current]
    more = (f"and {len(found) - _MOST_NAMED} more",) if len(found) > _MOST_NAMED else ()
    return (*found[:_MOST_NAMED], *more)


class TaskFailures(Collector):
    """prefix: of the program's metrics."""

    def __init__(self, prefix: str) -> None:
        self._name = f"{prefix}_task_failures"

    def collect(self) -> Iterator[CounterMetricFamily]:
        text = "Failures of tasks that do not end the program, which runs them again."
        family = CounterMetricFamily(self._name, text, labels=("task",))
        for task, count in sorted(dict(_failures).items()):
            family.add_metric((task,), count)
        yield family


def innermost(error: BaseException) -> BaseException:
    """Return the first error of nested groups of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
