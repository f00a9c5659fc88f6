"""What the commands that do one thing and end have in common: a client that logs nothing, patience, one deadline.

A command itself says what failed; the log of a program that runs for ever would say it a second time.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from nodedevice_operator.errors import ApiError, Overdue, Unavailable, Unreachable
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.metrics.metrics import Metrics

T = TypeVar("T")

_LONGEST_PAUSE_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.25


class _Quiet(ApiHealth):
    def succeeded(self, verb: str, what: str) -> None:
        """Not told."""

    def failed(self, error: ApiError) -> None:
        """Whoever asked tells it."""


def client(login: Credentials, fence: WriteFence | None = None) -> Client:
    """A client for one command. Close it at the end."""
    return Client(login, _Quiet(login.server), Metrics().writes, fence)


class Progress:
    """What a command is at, for when its time is over. Steps are entered one after the other, or one inside the other.

    say: told what is waited for, when the API server does not answer at first.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self.step = "beginning"
        self.trouble = ""
        self._say = say

    async def patiently(self, action: Callable[[], Awaitable[T]]) -> T:
        """Do it, and again while the API server is away or asks to come back later. Raises any other ApiError at once."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((Unreachable, Unavailable)),
            wait=wait_random_exponential(0.2, _LONGEST_PAUSE_SECONDS),
            before_sleep=self._remember,
        ):
            with attempt:
                done = await action()
        self.trouble = ""
        return done

    async def until(self, is_done: Callable[[], Awaitable[str]]) -> None:
        """Look until `is_done` has nothing to say any more; what it says last is told if the time is over before."""
        while True:
            self.trouble = await self.patiently(is_done)
            if not self.trouble:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _remember(self, state: RetryCallState) -> None:
        failure = state.outcome.exception() if state.outcome else None
        if not self.trouble:
            self._say(str(failure))
        self.trouble = str(failure) if failure else ""


@asynccontextmanager
async def within(seconds: float, say: Callable[[str], None] = lambda _: None) -> AsyncIterator[Progress]:
    """Do what is inside in that time. Raises Overdue, which says what it was at. say: as in Progress."""
    progress = Progress(say)
    try:
        async with asyncio.timeout(seconds):
            yield progress
    except TimeoutError as exc:
        raise Overdue(seconds, progress.step, progress.trouble) from exc
