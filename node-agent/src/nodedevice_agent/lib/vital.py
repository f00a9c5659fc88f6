"""Runs the tasks that an agent cannot do without. All others run under `retried`, or are awaited by who has made them."""

from collections.abc import Awaitable, Callable

from nodedevice_common import tasks

from nodedevice_agent.errors import AgentError, TaskEnded


async def vital(task: str, run: Callable[[], Awaitable[object]]) -> None:
    """Run until cancelled. AgentErrors propagate; any other exception, or a return, raises TaskEnded."""
    await tasks.vital(task, run, AgentError, TaskEnded)
