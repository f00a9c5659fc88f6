"""Runs the tasks that operator and extender cannot do without. All others run under `retried`."""

from collections.abc import Awaitable, Callable

from nodedevice_common import tasks

from nodedevice_operator.errors import OperatorError, TaskEnded


async def vital(task: str, run: Callable[[], Awaitable[object]]) -> None:
    """Runs until cancelled. OperatorErrors propagate; any other exception, or a return, raises TaskEnded."""
    await tasks.vital(task, run, OperatorError, TaskEnded)
