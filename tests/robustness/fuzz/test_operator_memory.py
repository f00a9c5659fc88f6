"""What the operator's start costs where one node's token has written as much as it could: objects as big as the API takes."""

import asyncio
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.played_api.kinds import NODE_DEVICES
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import serving
from tests.fakes.played_api.store import Made

MOST_MIB = 64
# of 1.2 MB, and of 64 KiB
BIG, SMALL = 400, 5000


def short_ids(count: int) -> dict[str, Any]:
    """Device IDs of a few bytes: in Python, ten times as many."""
    held = [
        {"podUID": f"{n}", "container": "c", "deviceIDs": [f"{n:x}{m:x}" for m in range(1000)]} for n in range(count)
    ]
    return {"total": 1, "allocations": held}


def broken_devices(count: int) -> dict[str, Any]:
    device = {"health": "Unhealthy", "reason": "x" * 60, "message": "m" * 60, "numaNodes": list(range(20))}
    return {"total": count, "devices": [{"id": f"{n}", **device} for n in range(count)]}


def words(size: int) -> dict[str, Any]:
    waiting = [{"podUID": f"{n}", "container": "c", "reason": "R", "message": f"{n}" * 200} for n in range(64)]
    kinds = ("Registered", "Healthy", "Injectable", *(f"Mine{n}" for n in range(20)))
    conditions = [{"type": kind, "status": "True", "message": "m" * 2000, "reason": "R"} for kind in kinds]
    return {"total": 1, "waiting": waiting, "conditions": conditions[: size // 2000]}


def template(status: dict[str, Any]) -> bytes:
    metadata = {
        "name": "node-a.example.com.rNUMBER",
        "uid": "uid-NUMBER",
        "resourceVersion": "8",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    spec = {"nodeName": "node-a", "resourceName": "example.com/rNUMBER"}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()


def made(templates: list[bytes], number: int) -> bytes:
    kinds = templates[:2] if number < BIG else templates[2:]
    return kinds[number % len(kinds)].replace(b"NUMBER", b"%04d" % number)


async def test_the_start_costs_little_whatever_one_node_has_written(tmp_path: Path) -> None:
    shapes: list[tuple[Callable[[int], dict[str, Any]], int]] = [
        (short_ids, 150),
        (broken_devices, 4096),
        (short_ids, 9),
        (broken_devices, 240),
        (words, 42_000),
    ]
    templates = [template(shape(count)) for shape, count in shapes]
    sizes = [len(each) for each in templates]
    assert min(sizes[:2]) > 1_000_000, sizes
    assert min(sizes[2:]) > 60_000, sizes
    listed = [Made("", f"node-a.example.com.r{n:04}", partial(made, templates, n)) for n in range(BIG + SMALL)]
    with serving(PlayedApi({NODE_DEVICES: listed})) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.robustness.fuzz.list_node_devices",
            str(tmp_path),
            server.address,
            stdout=asyncio.subprocess.PIPE,
        )
        peak, after, known, full = map(float, (await child.communicate())[0].split())
    assert known == BIG + SMALL
    assert full > 0
    assert max(peak, after) < MOST_MIB, (peak, after, full)
