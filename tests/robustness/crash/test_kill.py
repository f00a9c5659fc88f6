"""kill -9 of the real agent under load, at random points: no allocation is lost, and no device is allocated twice.

CRASH_POINTS: number of kills (over all nodes). CRASH_SEED: repeats the random choices; times differ all the same.
"""

import asyncio
import os
import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.api import AsyncClient, open_client
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import reserved_ports
from tests.examples import seed
from tests.robustness.crash.kill_run import KillRun, Results
from tests.robustness.crash.node import CrashNode

POINTS = int(os.environ.get("CRASH_POINTS", "12"))
SEED = seed("CRASH_SEED")
_POINTS_PER_NODE = 6
_MOST_NODES = 3
_SHOWN = 20


@pytest.mark.kubelet("scenario 87")
async def test_no_kill_loses_or_doubles_an_allocation(
    installed: ControlPlane, namespace: str, tmp_path: Path, progress: Callable[[str], None]
) -> None:
    progress(f"\nkilling the agent {POINTS} times, CRASH_SEED={SEED}")
    results = Results()
    count = min(_MOST_NODES, max(1, POINTS // _POINTS_PER_NODE))
    names = [f"crash-{index}-{uuid.uuid4().hex[:6]}" for index in range(count)]
    installed.add_nodes(names)
    with ExitStack() as undo:
        nodes = []
        for index, (name, port) in enumerate(zip(names, undo.enter_context(reserved_ports(count)), strict=True)):
            undo.callback(installed.remove_node, name)
            node = CrashNode(installed, name, tmp_path / str(index), port, SEED + index)
            undo.callback(node.end)
            nodes.append(node)
        await _kill_agents(installed, namespace, nodes, results)
    for failure in results.failures[:_SHOWN]:
        progress(failure)
    progress(
        f"kill points: {results.passed} passed, {POINTS - results.passed} failed; {results.in_writing} while a checkpoint was "
        f"written, {results.in_journal} with changes in the journal alone; {results.pods} pods, "
        f"{results.allocations} allocations compared, {results.statuses} statuses checked"
    )
    assert not results.failures, f"{len(results.failures)} contradictions, the first: {results.failures[0]}"
    assert results.passed == POINTS
    assert results.allocations > 0, "there was no load"


async def _kill_agents(control_plane: ControlPlane, namespace: str, nodes: list[CrashNode], results: Results) -> None:
    client = AsyncClient(open_client(control_plane.admin_kubeconfig))
    try:
        async with asyncio.TaskGroup() as group:
            for index, node in enumerate(nodes):
                run = KillRun(client, namespace, node, random.Random(SEED + index), results)
                group.create_task(run.run(len(range(index, POINTS, len(nodes)))))
    finally:
        await client.close()
