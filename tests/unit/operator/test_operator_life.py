"""The life of the operator around kopf's: what kopf is given, what is served, and what is left when either ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Any, cast

import kopf
import pytest
from nodedevice_common.http_server import Protection
from nodedevice_common.tasks import problems
from nodedevice_operator import operator as module
from nodedevice_operator.errors import TaskEnded
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import Health
from nodedevice_operator.operator import Operator

from tests.unit.operator.test_operator import operator as operator

Handlers = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]


def handlers(registry: kopf.OperatorRegistry) -> Handlers:
    """What kopf calls at its start and at its end."""
    start, _log_in, clean_up = registry._activities.get_all_handlers()
    return cast(Any, start.fn), cast(Any, clean_up.fn)


def blocked() -> set[signal.Signals]:
    return {signal.Signals(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


async def test_kopf_runs_alone_for_the_whole_cluster(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def run(**options: Any) -> None:
        given.update(options, blocked=blocked())

    monkeypatch.setattr(kopf, "operator", run)
    await operator.run()
    assert (given["identity"], given["clusterwide"], given["standalone"]) == ("nodedevice-operator", True, True)
    assert given["stop_flag"] is operator._stop
    assert not given["settings"].posting.enabled
    # a signal waits while kopf takes them, and is ours again afterwards
    assert given["blocked"] >= {signal.SIGTERM, signal.SIGINT}
    assert not blocked() & {signal.SIGTERM, signal.SIGINT}


async def test_probes_and_metrics_are_served_as_the_settings_say(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Any, ...]] = []

    def serve(_: Health, *given: Any) -> tuple[str, int]:
        served.append(given)
        return "127.0.0.1", 1

    async def run(**_: Any) -> None:
        """It ends at once."""

    protection = Protection()
    monkeypatch.setattr(operator, "_protection", lambda: protection)
    monkeypatch.setattr(Health, "serve", serve)
    monkeypatch.setattr(kopf, "operator", run)
    await operator.run()
    assert served == [(("127.0.0.1", 0), operator._metrics.registry, protection)]


async def test_when_kopf_fails_before_its_end_all_is_ended_for_it(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Client] = []
    close = Client.close

    async def closing(self: Client) -> None:
        closed.append(self)
        await close(self)

    async def run(registry: kopf.OperatorRegistry, **_: Any) -> None:
        start, _clean_up = handlers(registry)
        await start()
        raise RuntimeError("a bug")

    monkeypatch.setattr(Client, "close", closing)
    monkeypatch.setattr(kopf, "operator", run)
    with pytest.raises(TaskEnded, match=r"kopf has ended \(RuntimeError: a bug\)"):
        await operator.run()
    assert operator._running
    assert all(task.done() for task in operator._running)
    assert closed == operator._clients


async def test_after_a_signal_a_kopf_that_does_not_end_is_not_waited_for(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(registry: kopf.OperatorRegistry, stop_flag: asyncio.Event, **_: Any) -> None:
        start, clean_up = handlers(registry)
        await start()
        stop_flag.set()
        await clean_up()
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "_KOPF_END_SECONDS", 0.0)
    monkeypatch.setattr(kopf, "operator", run)
    await operator.run()


async def test_a_callback_that_fails_is_named_and_ends_nothing(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(**_: Any) -> None:
        context = {"message": "Exception in callback watch()", "exception": OSError("Too many open files")}
        asyncio.get_running_loop().call_exception_handler(context)

    monkeypatch.setattr(kopf, "operator", run)
    await operator.run()
    assert problems() == ("callback watch fails and is tried again: Too many open files",)
