"""The informer against a server with canned responses: where it resumes, when it lists again, what is an outage."""

import asyncio
import math

import pytest

from tests.fakes.operator.operator_model import node_device
from tests.unit.operator.informers.watched import ERROR, LAST, Watched, bookmark, event


async def test_it_goes_on_where_it_was_cut_also_after_bookmarks(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    lines = event(201, 1) + event(202, 2)
    pieces = [lines[:10], lines[10:400], lines[400:]]
    await watched.watch(pieces, [event(203, 3), bookmark(220, "node-b"), bookmark(230)], [LAST], until=4)
    assert watched.news == [("node-a", None, 1), ("node-a", 1, 2), ("node-a", 2, 3), ("node-z", None, 9)]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:3]] == ["101", "202", "230"]
    # whatever is in a bookmark beside its version is no object
    assert watched.cache.node_devices.nodes() == {"node-a", "node-z"}
    assert [each.message for each in caplog.records if each.levelname == "ERROR"] == []
    assert watched.server.tokens == {"Bearer fresh"}
    assert watched.cluster.version == 101, "listed once"


@pytest.mark.parametrize("too_old", [410, 404, [ERROR], [event(205, 1), ERROR]])
async def test_it_lists_again_when_it_cannot_go_on(watched: Watched, too_old: int | list[bytes]) -> None:
    await watched.watch(too_old, [LAST], until=1 if isinstance(too_old, int) or too_old == [ERROR] else 2)
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "102"]
    assert watched.cache.node_devices.is_complete


async def test_a_restored_server_replaces_what_is_newer(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Its versions begin again where the backup ended; from a version of the future it would send nothing."""
    watched.cluster.node_devices["n"] = node_device(available=7, resource_version=90)
    watched.cluster.version = 400
    watched.server.answers = [[event(500, 3, node="node-b"), b""], [LAST]]
    watched.cluster.restored_to = 450
    watched.start()
    async with asyncio.timeout(60):
        while not watched.server.asked:
            await asyncio.sleep(0)
    watched.cluster.version = 449
    await watched.until(2)
    known = {record.node: record.available for record in watched.cache.node_devices.values()}
    assert known == {"node-a": 7, "node-z": 9}
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["401", "450"]
    restored = "API server was restored from a backup; replacing all that was known"
    assert [record.levelname for record in caplog.records if record.message == restored] == ["WARNING"]


@pytest.mark.parametrize(
    ("status", "logged"),
    [
        (403, "API server denies access; grant the rights of the chart's role"),
        (503, "API server is unreachable; retrying"),
    ],
)
async def test_a_refusal_is_logged_and_retried_from_the_same_place(
    watched: Watched, status: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    await watched.watch(status, [LAST], until=1)
    assert logged in [record.message for record in caplog.records]
    assert watched.health.problems() == ()
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "101"]


@pytest.mark.parametrize("before", [b"", event(201, 1) + event(202, 2)[:40]], ids=["soon", "in a line"])
async def test_one_that_is_cut_is_no_outage(watched: Watched, before: bytes, caplog: pytest.LogCaptureFixture) -> None:
    await watched.watch([before, b""] if before else [b""], [event(203, 3)], [LAST], until=3 if before else 2)
    assert watched.server.asked[1]["resourceVersion"] == ("201" if before else "101")
    assert watched.cluster.version == 101, "listed once"
    assert watched.health.seconds_since_outage() == math.inf
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"<html>", id="no JSON"),
        pytest.param(event(205, 1)[:40], id="half of a line"),
        pytest.param(b'{"type":"MODIFIED","object":{"metadata":7}}', id="no object"),
        pytest.param(bookmark(1).replace(b'"1"', b'"one"').strip(), id="no version"),
    ],
)
async def test_a_nonsense_line_leads_to_a_list(watched: Watched, line: bytes, caplog: pytest.LogCaptureFixture) -> None:
    await watched.watch([event(102, 1), line + b"\n", event(202, 2)], [LAST], until=2)
    assert [node for node, *_ in watched.news] == ["node-a", "node-z"]
    logged = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert logged == ["invalid watch event; relisting"]
    assert [asked["resourceVersion"] for asked in watched.server.asked[:2]] == ["101", "102"]


async def test_a_refresh_lists_beside_the_watch_which_goes_on(watched: Watched) -> None:
    await watched.watch([event(150, 3)], [LAST], until=1)
    watched.cluster.node_devices["n"] = node_device(node="node-n", available=7, resource_version=160)
    watched.cluster.version = 170
    await watched.informer.refresh()
    assert "node-n" in watched.cache.node_devices.nodes()
    await watched.until(2)
    assert watched.server.asked[1]["resourceVersion"] == "150"
