"""kill -9 of the real agent under load, at random points: nothing is lost and nothing is given out twice.

CRASH_POINTS: how many kills (over all nodes). CRASH_SEED: to try the same chances again; times differ all the same.
"""

import asyncio
import os
import random
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from lightkube import AsyncClient, KubeConfig

from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.processes.processes import reserved_ports
from tests.robustness.crash.kill_run import Siege, Tally
from tests.robustness.crash.node import Victim

POINTS = int(os.environ.get("CRASH_POINTS", "12"))
SEED = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(2**32)))
_POINTS_PER_NODE = 6
_MOST_NODES = 3
_SHOWN = 20


@pytest.mark.kubelet("scenario 87")
async def test_no_kill_loses_or_doubles_anything(
    installed: ControlPlane, namespace: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    say = _sayer(pytestconfig)
    say(f"\nkilling the agent {POINTS} times, CRASH_SEED={SEED}")
    tally = Tally()
    count = min(_MOST_NODES, max(1, POINTS // _POINTS_PER_NODE))
    names = [f"crash-{index}-{uuid.uuid4().hex[:6]}" for index in range(count)]
    installed.add_nodes(names)
    with ExitStack() as undo:
        victims = []
        for index, (name, port) in enumerate(zip(names, undo.enter_context(reserved_ports(count)), strict=True)):
            undo.callback(installed.remove_node, name)
            victim = Victim(installed, name, tmp_path / str(index), port, SEED + index)
            undo.callback(victim.end)
            victims.append(victim)
        await _besiege(installed, namespace, victims, tally)
    for failure in tally.failures[:_SHOWN]:
        say(failure)
    say(
        f"kill points: {tally.passed} passed, {POINTS - tally.passed} failed; {tally.in_writing} in the middle of a checkpoint's "
        f"writing, {tally.in_journal} with lines in its journal; {tally.pods} pods, {tally.allocations} allocations compared, "
        f"{tally.statuses} statuses judged"
    )
    assert not tally.failures, f"{len(tally.failures)} contradictions, the first: {tally.failures[0]}"
    assert tally.passed == POINTS
    assert tally.allocations > 0, "there was no load"


async def _besiege(control_plane: ControlPlane, namespace: str, victims: list[Victim], tally: Tally) -> None:
    client: AsyncClient = AsyncClient(KubeConfig.from_file(control_plane.admin_kubeconfig), trust_env=False)
    try:
        async with asyncio.TaskGroup() as group:
            for index, victim in enumerate(victims):
                siege = Siege(client, namespace, victim, random.Random(SEED + index), tally)
                group.create_task(siege.run(len(range(index, POINTS, len(victims)))))
    finally:
        await client.close()


def _sayer(pytestconfig: pytest.Config) -> Any:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, flush=True)

    return say
