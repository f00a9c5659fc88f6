"""Another client that keeps writing a NodeDevice's status: pauses, and what is logged."""

import asyncio

import pytest
from nodedevice_agent.kube import retries
from nodedevice_agent.kube.contention import FREE_EDITS, LONGEST_PAUSE_SECONDS, WINDOW_SECONDS, Contention

from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.kube.one_object import FakeCluster, published
from tests.unit.node_agent.kube.one_object import cluster as cluster

RESTORED = "NodeDevice status was modified by another client; restoring it"
CONFLICT = (
    "conflict: another client keeps modifying the NodeDevice status; stop any other agent that has this --node-name"
)


@virtual_time
async def test_a_client_that_writes_after_each_write_is_answered_with_growing_pauses(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.is_contested = True
    async with published(cluster):
        await asyncio.sleep(60)
    assert FREE_EDITS < cluster.attempts < 25
    assert [record.getMessage() for record in caplog.records] == [RESTORED] * FREE_EDITS + [CONFLICT]


def test_contention_is_logged_once_a_minute_and_ends_with_the_edits(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    found = Contention("n1.gpu", lambda: now)
    for _ in range(FREE_EDITS):
        found.edited()
        assert found.pause_seconds() == 0
    for _ in range(240):
        now += 1
        found.edited()
        assert retries.FIRST_PAUSE_SECONDS <= found.pause_seconds() <= LONGEST_PAUSE_SECONDS
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [RESTORED] * FREE_EDITS + [CONFLICT] * 4
    now += WINDOW_SECONDS
    assert found.pause_seconds() == 0
    found.edited()
    assert caplog.records[-1].getMessage() == RESTORED
