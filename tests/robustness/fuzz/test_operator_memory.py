"""What the operator's start costs where one node's token has written as much as it could: objects as big as the API takes."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.operator.kube.api_server import Server

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


class Listed(Server):
    """Lists these objects page by page, each made when it is asked for."""

    def __init__(self, templates: list[bytes]) -> None:
        self.templates = templates
        super().__init__()

    def next_answer(self) -> tuple[int, bytes]:
        query = parse_qs(urlsplit(self.asked[-1][1]).query)
        first, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = min(first + limit, BIG + SMALL)
        items = b",".join(self.item(number) for number in range(first, end))
        more = b"" if end == BIG + SMALL else b"%d" % end
        return 200, b'{"metadata":{"resourceVersion":"9","continue":"%s"},"items":[%s]}' % (more, items)

    def item(self, number: int) -> bytes:
        kinds = self.templates[:2] if number < BIG else self.templates[2:]
        return kinds[number % len(kinds)].replace(b"NUMBER", b"%04d" % number)


def template(status: dict[str, Any]) -> bytes:
    metadata = {
        "name": "node-a.example.com.rNUMBER",
        "uid": "uid-NUMBER",
        "resourceVersion": "8",
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    spec = {"nodeName": "node-a", "resourceName": "example.com/rNUMBER"}
    return json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()


@pytest.fixture
def server() -> Iterator[Listed]:
    shapes: list[tuple[Callable[[int], dict[str, Any]], int]] = [
        (short_ids, 150),
        (broken_devices, 4096),
        (short_ids, 9),
        (broken_devices, 240),
        (words, 42_000),
    ]
    made = Listed([template(shape(count)) for shape, count in shapes])
    yield made
    made.close()


async def test_the_start_costs_little_whatever_one_node_has_written(server: Listed, tmp_path: Path) -> None:
    sizes = [len(each) for each in server.templates]
    assert min(sizes[:2]) > 1_000_000, sizes
    assert min(sizes[2:]) > 60_000, sizes
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.robustness.fuzz.list_node_devices",
        str(tmp_path),
        server.url,
        stdout=asyncio.subprocess.PIPE,
    )
    peak, after, known, full = map(float, (await child.communicate())[0].split())
    assert known == BIG + SMALL
    assert full > 0
    assert max(peak, after) < MOST_MIB, (peak, after, full)
