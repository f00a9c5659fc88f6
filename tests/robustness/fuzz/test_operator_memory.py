"""What the operator's start costs where one node's token has written as much as it could: objects as big as the API takes."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.fakes.played_api.kinds import NODE_DEVICES
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import serving
from tests.fakes.played_api.store import Made
from tests.integration.operator.test_memory import many_broken_devices, many_words

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
    devices = many_broken_devices()["devices"][:count]
    return {"total": count, "devices": devices}


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
    big = short_ids(150), broken_devices(2000)
    small = short_ids(9), broken_devices(110), many_words(1)
    templates = [template(status) for status in (*big, *small)]
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
