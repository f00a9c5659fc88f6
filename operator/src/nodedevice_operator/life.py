"""The life of a program: its tasks run until a signal, or until one of them ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from nodedevice_common.tasks import ended, log_failed_callbacks

from nodedevice_operator.errors import TaskEnded


def begin(stop: asyncio.Event) -> None:
    """From now on SIGTERM and SIGINT set `stop`, and failed callbacks are logged once each."""
    log_failed_callbacks()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def run_tasks(
    work: Mapping[str, Coroutine[Any, Any, None]], stop: asyncio.Event, release: Callable[[], Awaitable[object]]
) -> None:
    """Run these tasks, by name, until `stop` is set or one of them ends; then call `release`, and cancel the tasks.

    Raises what the task raised that ended; TaskEnded if it returned.
    """
    tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
    for task in tasks:
        task.add_done_callback(lambda _: stop.set())
    done: list[asyncio.Task[None]] = []
    try:
        await stop.wait()
        done = [task for task in tasks if task.done()]
    finally:
        await release()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
        raise TaskEnded(ended(task.get_name(), "it returned"))
