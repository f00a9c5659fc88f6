"""Units of eight GPUs, while agent and plugin are killed: no unit twice, no container over two GPUs, nothing left at the end.

PART_STEPS: how often a pod comes or goes. CRASH_SEED: repeats the random choices; times differ all the same.
"""

import os
import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.api import AsyncClient, open_client
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import reserved_ports
from tests.robustness.crash.parts_node import PartsNode
from tests.robustness.crash.parts_run import PartsRun
from tests.robustness.crash.test_kill import SEED

STEPS = int(os.environ.get("PART_STEPS", "200"))
_SHOWN = 20


async def test_no_unit_twice_and_no_container_over_two_gpus(
    installed: ControlPlane, namespace: str, tmp_path: Path, progress: Callable[[str], None]
) -> None:
    progress(f"\n{STEPS} steps of pods with units of GPUs, CRASH_SEED={SEED}")
    name = f"parts-{uuid.uuid4().hex[:6]}"
    installed.add_nodes([name])
    client = AsyncClient(open_client(installed.admin_kubeconfig))
    with ExitStack() as undo:
        undo.callback(installed.remove_node, name)
        (port,) = undo.enter_context(reserved_ports(1))
        node = PartsNode(installed, name, tmp_path / "n", port)
        undo.callback(node.end)
        run = PartsRun(client, namespace, node, random.Random(SEED))
        try:
            await run.run(STEPS)
        finally:
            await client.close()
    results = run.results
    for failure in results.failures[:_SHOWN]:
        progress(failure)
    progress(
        f"{results.pods} pods, {results.kills} kills, {results.holdings} holdings and {results.directories} directories in "
        f"{results.checks} checks"
    )
    assert not results.failures, f"{len(results.failures)} contradictions, the first: {results.failures[0]}"
    assert min(results.holdings, results.directories) > 0, "there was no load"
