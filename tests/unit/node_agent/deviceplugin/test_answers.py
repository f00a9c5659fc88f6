"""A plugin that hangs is noticed, its devices count as unhealthy, and it is back when it answers; its connection stays."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.deviceplugin import connection as connections
from nodedevice_agent.deviceplugin import plugin_liveness as module
from nodedevice_agent.deviceplugin.plugin_liveness import ASK_EVERY_SECONDS, Answers
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kube.status import node_device_status
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import NodeDeviceStatus
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.polling import until
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.deviceplugin.conftest import Start

GOOD = "example.com/good"
CALL_SECONDS = 10.0


class Plugin:
    """Answers by the loop's clock: after `takes` seconds, or with `failure`."""

    def __init__(self) -> None:
        self.changes: list[bool] = []
        self.answers = Answers(self.changes.append)
        self.takes = 0.1
        self.failure: Exception | None = None
        self.asked = 0

    async def call(self, seconds: float = CALL_SECONDS) -> None:
        with self.answers.during():
            await later(min(self.takes, seconds))
            if self.takes > seconds:
                raise TimeoutError
            if self.failure is not None:
                raise self.failure

    async def ask(self) -> None:
        self.asked += 1
        try:
            await self.call()
        except Exception:
            logging.debug("no answer")


@pytest.fixture
async def plugin() -> AsyncIterator[Plugin]:
    made = Plugin()
    async with background(made.answers.work(made.ask)):
        yield made


@virtual_time
async def test_one_that_hangs_is_silent_after_two_questions_until_it_answers(plugin: Plugin) -> None:
    await asyncio.sleep(10 * ASK_EVERY_SECONDS)
    assert plugin.changes == []
    plugin.takes = 1000.0
    await asyncio.sleep(ASK_EVERY_SECONDS + CALL_SECONDS + 1)
    assert plugin.changes == [], "one miss may be anything"
    await asyncio.sleep(ASK_EVERY_SECONDS + CALL_SECONDS)
    assert plugin.changes == [False]
    await asyncio.sleep(600)
    assert plugin.changes == [False]
    plugin.takes = 0.1
    await asyncio.sleep(ASK_EVERY_SECONDS + CALL_SECONDS)
    assert plugin.changes == [False, True]


@virtual_time
async def test_an_error_is_an_answer(plugin: Plugin) -> None:
    plugin.failure = ValueError("not implemented")
    await asyncio.sleep(600)
    assert plugin.asked >= 10
    assert plugin.changes == []


@virtual_time
async def test_while_one_of_several_calls_is_under_way_it_is_not_asked(plugin: Plugin) -> None:
    plugin.takes = 200.0
    long = asyncio.create_task(plugin.call(seconds=300.0))
    await asyncio.sleep(1)
    plugin.takes = 1.0
    await plugin.call()
    await asyncio.sleep(150)
    assert plugin.asked == 0
    await long
    await asyncio.sleep(2 * ASK_EVERY_SECONDS)
    assert plugin.asked > 0


@pytest.mark.parametrize(
    ("end", "is_silent"),
    [
        pytest.param(None, False, id="a response"),
        pytest.param(ValueError, False, id="an error"),
        pytest.param(asyncio.CancelledError, True, id="none: it was given up"),
    ],
)
async def test_what_ends_a_row_of_misses(end: type[BaseException] | None, is_silent: bool) -> None:
    answers = Answers()
    answers.missed()
    with suppress(ValueError, asyncio.CancelledError), answers.during():
        if end is not None:
            raise end
    answers.missed()
    assert answers.is_silent is is_silent


@virtual_time
async def test_calls_that_have_no_answer_in_their_own_time_count(plugin: Plugin) -> None:
    plugin.takes = 1000.0
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await plugin.call(seconds=15.0)
    assert plugin.changes == [False]
    assert plugin.asked == 0


@virtual_time
async def test_a_call_during_which_this_process_did_not_run_counts_for_nothing(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that was suspended, or has too much to do."""
    monkeypatch.setattr(module._Call, "_beat", lambda _: None)
    plugin.takes = 1000.0
    await asyncio.sleep(600)
    assert plugin.asked >= 10
    assert plugin.changes == []


@pytest.fixture
async def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HostedManager]:
    monkeypatch.setattr(module, "ASK_EVERY_SECONDS", 0.02)
    async with hosted(tmp_path) as made:
        yield made


@pytest.fixture
async def good(join: Start) -> FakePlugin:
    return await join(GOOD, "d0", "d1")


@pytest.fixture
def _answers_are_due_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one that hangs: who answers may be late then, on a slow machine, and is back at the next answer."""
    monkeypatch.setattr(connections, "ASK_SECONDS", 0.05)


def registered(manager: HostedManager) -> tuple[str, str]:
    """Reason and message of Registered as it would be published."""
    now = snapshot(manager.manager, GOOD)
    status = node_device_status(now, NodeDeviceStatus(), wall_time="2026-01-01T00:00:00Z", version="1", delivery="none")
    [found] = [each for each in status.conditions if each.type == "Registered"]
    return found.reason, found.message


@pytest.mark.usefixtures("_answers_are_due_soon")
async def test_its_devices_are_unhealthy_and_calls_are_refused_until_it_answers(
    manager: HostedManager, good: FakePlugin, caplog: pytest.LogCaptureFixture
) -> None:
    connection = manager.host.newest(GOOD, "Allocate")
    good.knobs.options_gate = asyncio.Event()
    await manager.until(lambda: manager.available(GOOD) == 0)
    resource = manager.manager.resources[GOOD]
    assert (resource.presence.state, resource.presence.is_silent) == (EndpointState.STOPPED, True)
    reason, message = registered(manager)
    assert (reason, "does not respond" in message) == (Reason.ENDPOINT_STOPPED, True)
    # a pod waits, with the reason, and the plugin is not called
    manager.pod_seen(pod("p", GOOD, 1))
    (pending,) = manager.manager.pending(GOOD)
    assert (pending.reason, "does not respond" in pending.message) == (Reason.ENDPOINT_STOPPED, True)
    with pytest.raises(PluginFailed, match="does not respond"):
        await connection.pre_start(("d0",))
    assert good.calls_of("Allocate") == good.calls_of("PreStartContainer") == []
    # a name whose object is not watched any more has no series left
    metrics.forget(GOOD)
    # what it lists meanwhile counts afterwards
    await good.update({"d0": FakeDevice(), "d1": FakeDevice(healthy=False), "d2": FakeDevice()})
    await until(lambda: len(connection.last.devices) == 3)
    assert manager.available(GOOD) == 0
    good.knobs.options_gate.set()
    await until(lambda: bool(good.calls_of("Allocate")))
    await manager.until(lambda: manager.available(GOOD) == 1)
    assert manager.host.newest(GOOD, "Allocate") is connection, "it never had to register again"
    assert resource.connections.sockets() == (str(good.socket_path),)
    assert REGISTRY.get_sample_value("nodedevice_agent_allocate_failures_total", {"resource_name": GOOD}) == 0
    messages = [record.message for record in caplog.records if "respond" in record.message]
    assert messages[0].startswith("device plugin does not respond")


@pytest.mark.usefixtures("_answers_are_due_soon")
async def test_one_that_ends_while_it_is_silent_is_stopped(
    manager: HostedManager, good: FakePlugin, join: Start
) -> None:
    good.knobs.options_gate = asyncio.Event()
    await manager.until(lambda: manager.available(GOOD) == 0)
    await good.stop()
    resource = manager.manager.resources[GOOD]
    await until(lambda: resource.connections.sockets() == ())
    assert resource.presence.state is EndpointState.STOPPED
    # and a new one takes its place
    await join(GOOD)
