"""The life of the operator: what is served, who is told of a recovery, and what is left at its end."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nodedevice_common.http_server import Protection
from nodedevice_common.tasks import problems
from nodedevice_operator.errors import StaleWatch
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import Health
from nodedevice_operator.operator import Operator

from tests.unit.operator.test_operator import operator as operator


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[None]:
    """Until SIGTERM at the end of the block."""
    task = asyncio.create_task(operator.run())
    await asyncio.sleep(0)
    yield
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(60):
        await task


async def test_probes_and_metrics_are_served_as_the_settings_say(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Any, ...]] = []

    def serve(_: Health, *given: Any) -> tuple[str, int]:
        served.append(given)
        return "127.0.0.1", 1

    protection = Protection()
    monkeypatch.setattr(operator, "_protection", lambda: protection)
    monkeypatch.setattr(Health, "serve", serve)
    async with running(operator):
        pass
    assert served == [(("127.0.0.1", 0), operator._metrics.registry, protection)]


async def test_at_its_end_no_task_and_no_client_is_left(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Client] = []
    close = Client.close

    async def closing(self: Client) -> None:
        closed.append(self)
        await close(self)

    async def fail(_: Watchdog) -> None:
        raise StaleWatch("NodeDevice", "a", 7, 10.0)

    monkeypatch.setattr(Client, "close", closing)
    monkeypatch.setattr(Watchdog, "work", fail)
    with pytest.raises(StaleWatch):
        await operator.run()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert closed == operator._clients


async def test_what_waits_is_tried_when_the_api_is_back(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread has noticed it: kopf's requests report there, too."""
    retried, is_retried = list[int](), asyncio.Event()

    def retry_now(_: object) -> None:
        retried.append(threading.get_ident())
        is_retried.set()

    monkeypatch.setattr(type(operator._queue), "retry_now", retry_now)
    async with running(operator):
        await asyncio.to_thread(operator._api_health.on_recovery)
        async with asyncio.timeout(60):
            await is_retried.wait()
    assert retried == [threading.get_ident()]


async def test_a_callback_that_fails_is_named_and_ends_nothing(operator: Operator) -> None:
    async with running(operator):
        context = {"message": "Exception in callback watch()", "exception": OSError("Too many open files")}
        asyncio.get_running_loop().call_exception_handler(context)
        assert "callback watch fails and is tried again: Too many open files" in problems()
