"""What ends the operator: a task that has to go on for ever, and did not."""

import asyncio
import inspect
import itertools
import os
import signal
from pathlib import Path
from typing import Any, cast

import kopf
import pytest
from nodedevice_operator import settings
from nodedevice_operator.config_watch import kopf_settings
from nodedevice_operator.errors import StaleWatch, TaskEnded
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kopf_storage import InMemoryDiffs
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.operator import Operator, _raise_failure
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.operator_model import GPU, node_device
from tests.unit.operator.kube.api_server import kubeconfig


async def _ended(failure: Exception | None) -> asyncio.Task[None]:
    async def work() -> None:
        if failure is not None:
            raise failure

    task = asyncio.create_task(work(), name="leases")
    await asyncio.wait([task])
    return task


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (ValueError("two\nlines"), "the task leases has ended (ValueError: two lines), which is a bug"),
        (None, "the task leases has ended (it returned), which is a bug"),
    ],
)
async def test_a_bug_is_one_line(failure: Exception | None, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TaskEnded) as ended:
        _raise_failure(await _ended(failure))
    assert str(ended.value).startswith(expected)
    assert "\n" not in str(ended.value)
    assert [record.message for record in caplog.records] == ["background task ended unexpectedly"]


async def test_what_was_raised_on_purpose_is_passed_on() -> None:
    with pytest.raises(StaleWatch):
        _raise_failure(await _ended(StaleWatch("NodeDevice", "a", 7, 10.0)))


def test_kopf_is_set_to_write_nothing_and_to_retry_without_end() -> None:
    of_kopf = kopf_settings(InMemoryDiffs())
    assert not of_kopf.posting.enabled
    assert of_kopf.scanning.disabled
    backoffs: Any = of_kopf.networking.error_backoffs
    delays = list(itertools.islice(backoffs, 1000))
    assert max(delays) <= 1.0


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Of a cluster that is not there."""
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    return Operator(settings.load(None, {"kubeconfig": file, "http_address": "127.0.0.1:0", "leader_elect": False}))


def _kopf_that_fails(monkeypatch: pytest.MonkeyPatch, *, after_a_signal: bool) -> None:
    """kopf.operator with the same hooks, and an error at its end."""

    async def run(registry: kopf.OperatorRegistry, stop_flag: asyncio.Event, **_: Any) -> None:
        start, _log_in, clean_up = registry._activities.get_all_handlers()
        await cast(Any, start.fn)()
        if after_a_signal:
            os.kill(os.getpid(), signal.SIGTERM)
            await stop_flag.wait()
        await cast(Any, clean_up.fn)()
        raise RuntimeError("Session is closed")

    monkeypatch.setattr(kopf, "operator", run)


async def test_a_kopf_error_after_a_signal_is_no_failure(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    _kopf_that_fails(monkeypatch, after_a_signal=True)
    await operator.run()


async def test_an_error_of_kopf_by_itself_is_a_failure(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    _kopf_that_fails(monkeypatch, after_a_signal=False)
    with pytest.raises(TaskEnded, match=r"kopf has ended \(RuntimeError: Session is closed\)"):
        await operator.run()


def _parts(operator: Operator) -> list[object]:
    """All objects of ours that it is made of."""
    found: dict[int, object] = {}
    todo: list[object] = [operator]
    while todo:
        part = todo.pop()
        if isinstance(part, dict | list | tuple):
            todo += part.values() if isinstance(part, dict) else part
        elif type(part).__module__.startswith("nodedevice_") and id(part) not in found:
            found[id(part)] = part
            names = [name for kind in type(part).__mro__ for name in getattr(kind, "__slots__", ())]
            todo += [getattr(part, name) for name in {*names, *getattr(part, "__dict__", ())} if hasattr(part, name)]
    return [*found.values()]


def test_each_part_has_what_it_asks_for(operator: Operator) -> None:
    for part in _parts(operator):
        for name, parameter in inspect.signature(type(part)).parameters.items():
            for attribute in (name, f"_{name}"):
                if "| None" not in str(parameter.annotation):
                    assert getattr(part, attribute, part) is not None, f"{type(part).__name__}.{attribute}"


def test_settings_reach_those_who_work_by_them(tmp_path: Path) -> None:
    seconds = {"agent_grace_seconds": 77.0, "agent_poll_seconds": 7.0, "leader_elect": False}
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    agents = Operator(settings.load(None, {"kubeconfig": file, **seconds}))._agents
    assert (agents.grace_seconds, agents.interval_seconds) == (77.0, 7.0)


@pytest.mark.parametrize("kind", [Cache, WriteFence, EventRecorder, WorkQueue, Metrics, AgentMonitor])
def test_of_what_they_share_there_is_one(operator: Operator, kind: type) -> None:
    """Two caches, or two fences, would each know half."""
    assert len([part for part in _parts(operator) if isinstance(part, kind)]) == 1


def test_metrics_are_those_of_its_cache_and_its_lead(operator: Operator) -> None:
    value = operator._metrics.registry.get_sample_value
    operator._cache.node_devices.put(node_device(total=3))
    # without an election it leads
    assert value("nodedevice_operator_leader") == 1
    assert value("nodedevice_operator_devices", {"resource_name": GPU, "state": "total"}) == 3


def test_what_waits_is_tried_when_the_api_is_back(operator: Operator) -> None:
    assert operator._api_health.on_recovery == operator._queue.retry_now
