"""Runs the tasks that operator and extender cannot do without. All others run under `retried`."""

from collections.abc import Awaitable, Callable

from nodedevice_common import tasks

from nodedevice_operator.errors import OperatorError, TaskEnded


async def vital(task: str, run: Callable[[], Awaitable[object]]) -> None:
    """For ever. Raises OperatorError: TaskEnded for everything that is no OperatorError, and for a return."""
    await tasks.vital(task, run, OperatorError, TaskEnded)
