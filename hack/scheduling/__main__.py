"""`make scheduling`: counts units that are assigned twice, pods that wait on their node, and used units of GPUs.

A real kube-scheduler, real extenders and a real API server; the agents are models that plan with the agents' own code.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from hack.scheduling.cluster import gpu_cluster
from hack.scheduling.load import Outcome
from hack.scheduling.runs import Filled, Site, filled, with_extenders, without

_OUT = Path(__file__).parents[2] / "build" / "scheduling.json"
_NODES = 20
_TIMES = 20
_EVERY_SECONDS = 10.0
_ENOUGH = 0.95


def _progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


async def _measure(site: Site, pods: int) -> tuple[dict[str, Outcome], int, Filled]:
    _progress(f"{pods} pods come and go, with an extender")
    quiet, _ = await with_extenders(site, pods, seed=1)
    _progress(
        f"{pods} pods come and go; the active one of two extenders is killed or paused every {_EVERY_SECONDS:.0f} s"
    )
    disturbed, times = await with_extenders(site, pods, seed=2, times=_TIMES, every_seconds=_EVERY_SECONDS)
    _progress(f"{pods} pods come and go, without an extender")
    alone = await without(site, pods, seed=1)
    _progress("pods that stay: 110 % of the capacity")
    full = await filled(site, seed=4)
    return {"with extender": quiet, "extenders killed and paused": disturbed, "without extender": alone}, times, full


def main() -> int:
    pods = int(os.environ.get("SCHEDULING_PODS", "10000"))
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-scheduling-"))
    try:
        with gpu_cluster(folder, _NODES, _progress) as (control_plane, nodes):
            outcomes, times, full = asyncio.run(_measure(Site(control_plane, nodes, folder), pods))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _report(outcomes, times, full)


def _report(outcomes: dict[str, Outcome], times: int, full: Filled) -> int:
    table = Table(title=f"{_NODES} nodes of 8 GPUs with 80 units")
    for column in ("run", "pods bound", "full", "waited on their node", "units twice", "choices refused", "pods/s"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, of in outcomes.items():
        counts = (f"{count:,}" for count in (of.waits, of.twice, of.refused))
        table.add_row(name, f"{of.pods:,}", f"{of.fill:.0%}", *counts, f"{of.pods / of.seconds:.0f}")
    Console(width=110).print(table)
    share = full.outcome.units / full.first_fit
    print(f"extenders were killed or paused {times} times")
    print(f"{full.outcome.units:,} units of {full.demand:,} are placed of pods that stay")
    print(f"which is {share:.1%} of first-fit-decreasing's {full.first_fit:,}; at least {_ENOUGH:.0%} wanted")
    _OUT.parent.mkdir(exist_ok=True)
    found = {"runs": {name: asdict(of) for name, of in outcomes.items()}, "disturbed": times, "filled": asdict(full)}
    _OUT.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    extended = [of for name, of in outcomes.items() if not name.startswith("without")] + [full.outcome]
    is_right = (
        all(of.waits == of.twice == of.refused == 0 and of.chosen == of.pods for of in extended) and share >= _ENOUGH
    )
    print("as expected" if is_right else "NOT as expected")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
