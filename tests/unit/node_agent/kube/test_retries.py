"""Retries of requests, with growing pauses."""

import asyncio

import pytest
from nodedevice_agent.kube.retries import LONGEST_PAUSE_SECONDS, until_done
from nodedevice_kube.api_errors import Gone, Unavailable

from tests.fakes.virtual_time import virtual_time

LOST = Unavailable("watching", "pods", "lost")


@virtual_time
async def test_pauses_grow_until_an_error_that_the_caller_handles() -> None:
    attempts: list[float] = []

    async def once() -> None:
        attempts.append(asyncio.get_running_loop().time())
        raise LOST if len(attempts) < 12 else Gone("watching", "pods", "too old", 410)

    with pytest.raises(Gone):
        await until_done(once, but=Gone)
    assert attempts[1] - attempts[0] <= 1
    assert LONGEST_PAUSE_SECONDS / 2 <= attempts[-1] - attempts[-2] <= LONGEST_PAUSE_SECONDS
