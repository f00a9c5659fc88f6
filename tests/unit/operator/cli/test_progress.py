"""What the short commands share: patience with an API server that is away, one deadline, and the word on what it was about."""

import asyncio

import pytest
from nodedevice_kube.api_errors import ApiError, Forbidden, Unavailable, Unreachable
from nodedevice_operator.cli.command_base import within
from nodedevice_operator.errors import Overdue

from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time


class Server:
    """Answers with these failures, one after the other, and then well."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def ask(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "well"


def away() -> ApiError:
    return Unreachable("GET", "nodes", "connection refused")


async def test_waits_for_an_api_server_that_is_away() -> None:
    server = Server(away(), Unavailable("GET", "nodes", "busy", 429))
    clock = asyncio.get_running_loop().time
    async with within(1000) as progress:
        assert await progress.retrying(server.ask) == "well"
        assert server.calls == 3
        began = clock()
        await progress.retrying(Server(away()).ask)
        assert clock() - began <= 0.2
        began = clock()
        await progress.retrying(Server(*[away()] * 40).ask)
        assert clock() - began <= 40 * 3


WAITING = "waiting for the API server: GET nodes"


async def test_what_is_waited_for_is_reported_once_for_each_outage(capsys: pytest.CaptureFixture[str]) -> None:
    busy = Unavailable("GET", "nodes", "busy", 429)
    async with within(60) as progress:
        await progress.retrying(Server(away(), busy).ask)
        await progress.retrying(Server().ask)
        assert capsys.readouterr() == ("", f"{WAITING}: connection refused\n")
        await progress.retrying(Server(busy).ask)
    assert capsys.readouterr() == ("", f"{WAITING}: busy\n")


async def test_the_time_that_is_over_is_a_part_of_the_limit() -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(Overdue, match="not done after 60 s"):
        async with within(60, spent=20.0):
            await asyncio.sleep(1000)
    assert asyncio.get_running_loop().time() - began == pytest.approx(40)


async def test_a_refusal_is_final() -> None:
    server = Server(Forbidden("GET", "nodes", "no", 403))
    with pytest.raises(Forbidden):
        async with within(60) as progress:
            await progress.retrying(server.ask)


async def test_what_is_still_missing_at_the_deadline_is_reported() -> None:
    async def missing() -> str:
        return "a pod is still there"

    with pytest.raises(Overdue) as overdue:
        async with within(60) as progress:
            await progress.until(missing)
    assert overdue.value.trouble == "a pod is still there"
