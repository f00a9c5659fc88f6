"""Shared by the commands that run once: a client that logs nothing, as they report failures; retries; one deadline."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import click
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Unavailable, Unreachable
from nodedevice_kube.retries import Retries

from nodedevice_operator.cli.program_options import SETTINGS as SETTINGS
from nodedevice_operator.errors import REPORTED, Overdue
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.retrying import retrying
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics

T = TypeVar("T")

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 3.0
_POLL_SECONDS: Final = 0.25

kubeconfig_option = click.option(
    "--kubeconfig", help="Kubeconfig to use; without it the pod's service account, or ~/.kube/config."
)
namespace_option = click.option(
    "--namespace", help="Namespace of the operator; without it the pod's own, or the kubeconfig's."
)
leases_namespace_option = click.option(
    "--leases-namespace", default=names.AGENTS_NAMESPACE, help="Namespace of the agents' Leases."
)


class OneCommand(click.Command):
    """A command that reports a failure in one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except REPORTED as error:
            raise click.ClickException(str(error)) from error


class _SilentHealth(ApiHealth):
    def succeeded(self, verb: str, what: str) -> None:
        """Logs nothing."""

    def failed(self, error: ApiError) -> None:
        """Logs nothing: the caller reports it."""


@asynccontextmanager
async def connected(login: Credentials, fence: WriteFence | None = None) -> AsyncIterator[Client]:
    client = Client(login, _SilentHealth(login.server), Metrics().writes, fence)
    try:
        yield client
    finally:
        await client.close()


class Progress:
    """missing: the thing that `until` waits for; trouble: the same, or the error of the API server."""

    def __init__(self) -> None:
        self.step = "beginning"
        self.trouble = self.missing = ""

    def begin(self, step: str, seconds: float | None = None) -> None:
        """The next step, printed now. seconds: how long it may take."""
        self.step = step
        self.trouble = self.missing = ""
        click.echo(step if seconds is None else f"{step}, at most {seconds:.0f} s")

    async def retrying(self, action: Callable[[], Awaitable[T]]) -> T:
        """Call it, and retry while the API server is unreachable or busy. Raises any other ApiError at once."""
        pauses = Retries(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        done = await retrying(action, (Unreachable, Unavailable), pauses, failed=self._remember)
        self.trouble = self.missing = ""
        return done

    async def until(self, missing: Callable[[], Awaitable[str]]) -> None:
        """Poll until `missing` returns ""; the error names its last return value if the time is over first."""
        while True:
            self.trouble = self.missing = await self.retrying(missing)
            if not self.missing:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _remember(self, error: ApiError) -> None:
        trouble = str(error)
        if self.trouble == self.missing:
            # for people only: programs read the output
            click.echo(f"waiting for the API server: {trouble}", err=True)
        self.trouble, self.missing = trouble, ""


@asynccontextmanager
async def within(seconds: float, spent: float = 0.0) -> AsyncIterator[Progress]:
    """A time limit for the block. Raises Overdue, with the step it was at. spent: how much is over."""
    progress = Progress()
    try:
        async with asyncio.timeout(seconds - spent):
            yield progress
    except TimeoutError as exc:
        raise Overdue(seconds, progress.step, progress.trouble) from exc
