"""A task that is for showing, or for one feature, fails, whatever it raises: the program goes on, and the task is run again.

One that is vital ends the program, in a sentence that names it.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_common import tasks
from nodedevice_operator import settings
from nodedevice_operator.configs.controller import ConfigController
from nodedevice_operator.configs.kopf_run import KopfRun
from nodedevice_operator.errors import TaskEnded
from nodedevice_operator.extender import settings as extender_settings
from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.lease_follower import LeaseFollower
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.server import Server
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.leases.elector import Election
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.operator import Operator
from nodedevice_operator.remediation.eviction_controller import EvictionController
from nodedevice_operator.remediation.node_taint_and_label_controller import NodeLabelController
from nodedevice_operator.remediation.unused_nodedevices import GoneNodeDevices
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.shared_slices import SharedSlices
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.failing_task import FAILURES, Failing
from tests.unit.operator.kube.api_server import kubeconfig
from tests.unit.test_tasks import RETRIED, VITAL

# a program's task, and what it runs
OPERATOR: Final[dict[str, tuple[type, str]]] = {
    "beat": (Operator, "_beat"),
    "election": (Election, "work"),
    "watchdog": (Watchdog, "work"),
    "events": (EventRecorder, "work"),
    "leases": (AgentMonitor, "work"),
    "policy": (RequiredPluginsController, "work"),
    "watch-policy": (RequiredPluginsController, "watch"),
    "configs": (ConfigController, "work"),
    "watch-configs": (KopfRun, "work"),
    "evictions": (EvictionController, "work"),
    "node-labels": (NodeLabelController, "work"),
    "gone-nodedevices": (GoneNodeDevices, "work"),
    "shared-slices": (SharedSlices, "work"),
    "watch-{kind}": (Informer, "work"),
    "reconcile": (WorkQueue, "work"),
}
EXTENDER: Final[dict[str, tuple[type, str]]] = {
    "beat": (Extender, "_beat"),
    "port": (Server, "work"),
    "binds": (Binder, "work"),
    "activity": (Activity, "work"),
    "watchdog": (Watchdog, "work"),
    "watch-{kind}": (Informer, "work"),
    "election": (Election, "work"),
    "followed-lease": (LeaseFollower, "work"),
}
# kinds that are watched are vital; a kind that is only shown has the same informer
_VITAL_HERE: Final = {"operator": VITAL["operator"].keys(), "extender": VITAL["extender"].keys()}
PROGRAMS: Final = {"operator": OPERATOR, "extender": EXTENDER}


def _made(program: str, folder: Path) -> Operator | Extender:
    given = {"kubeconfig": kubeconfig(folder, "http://127.0.0.1:1"), "http_address": "127.0.0.1:0"}
    if program == "operator":
        return Operator(settings.load(None, given))
    followed = {"address": "127.0.0.1:0", "follow_lease": "kube-system/kube-scheduler"}
    return Extender(extender_settings.load(None, {**given, **followed}))


Runs = Callable[..., AbstractAsyncContextManager[tuple[Failing, asyncio.Task[None]]]]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """The whole program, with this one of its tasks failing and all others idle."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    for method in ("end", "stand_aside"):
        monkeypatch.setattr(Election, method, lambda *_: asyncio.sleep(0))

    @asynccontextmanager
    async def run(
        program: str, failing: str, *failures: Exception
    ) -> AsyncIterator[tuple[Failing, asyncio.Task[None]]]:
        bad = Failing(*failures)
        for name, (owner, method) in PROGRAMS[program].items():
            work = bad if name == failing else Failing()
            monkeypatch.setattr(owner, method, work.work)
        task = asyncio.create_task(_made(program, tmp_path).run())
        # it handles signals from now on
        await asyncio.sleep(0)
        try:
            yield bad, task
        finally:
            if not task.done():
                os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.gather(task, return_exceptions=True)

    return run


def _cases(kind: dict[str, Any], but: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (program, name) for program in PROGRAMS for name in sorted(kind.get(program, ())) if name not in but[program]
    ]


@pytest.mark.parametrize(("program", "name"), _cases(RETRIED, _VITAL_HERE))
async def test_what_is_shown_is_run_again_and_ends_nothing(program: str, name: str, running: Runs) -> None:
    async with running(program, name, *FAILURES) as (bad, task):
        async with asyncio.timeout(60):
            waiting = asyncio.create_task(bad.is_well.wait())
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
        assert not task.done()
        assert bad.times > len(FAILURES)
        assert any(problem.startswith(name) for problem in tasks.problems())
    assert tasks.problems() == ()
    # it was stopped, in order
    assert task.exception() is None


@pytest.mark.parametrize(("program", "name"), _cases(VITAL, {"operator": (), "extender": ()}))
async def test_what_is_vital_ends_the_program_in_a_sentence(program: str, name: str, running: Runs) -> None:
    async with running(program, name, FAILURES[-1]) as (_, task):
        async with asyncio.timeout(60):
            await asyncio.wait([task])
    ended = task.exception()
    assert isinstance(ended, TaskEnded)
    text = str(ended)
    assert text.startswith(f"the task {name.partition('{')[0]}")
    assert text.endswith("which is a bug: report it with the log; exiting for a restart")
    assert "\n" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_signal_ends_it_with_all_its_tasks(
    program: str, number: signal.Signals, running: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(program, "beat") as (beat, task):
        async with asyncio.timeout(60):
            await beat.is_well.wait()
            os.kill(os.getpid(), number)
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
    messages = [record.message for record in caplog.records]
    assert "serving" in messages
    assert messages[-1] == "stopped"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_task_is_tried(program: str) -> None:
    assert PROGRAMS[program].keys() == VITAL[program].keys() | RETRIED.get(program, set())
