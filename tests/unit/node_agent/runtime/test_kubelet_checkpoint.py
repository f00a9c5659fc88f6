"""What the kubelet has beside us, as its last checkpoint that could be used has it."""

from typing import cast

import pytest
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

from tests.fakes.log_lines import log_lines
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC


def test_one_that_cannot_be_used_counts_as_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    found = KubeletCheckpoint(cast(KubeletReader, None))
    held = [Allocation(uid, "main", GPU, {-1: ("a",)}, b"") for uid in ("p", "q")]
    for _ in range(2):
        caplog.clear()
        found.checkpoint_read(CheckpointReading(Checkpoint(tuple(held), {GPU: ("a",)})))
        assert (GPU in found, NIC in found) == (True, False)
        assert [found.requests_met(uid) for uid in "pr"] == [{("main", GPU)}, set()]
        for problem in ("torn", "empty"):
            found.checkpoint_read(CheckpointReading(None, problem))
            assert (GPU in found, found.requests_met("p")) == (False, frozenset())
        assert log_lines(caplog.records) == [("WARNING", "cannot read the kubelet's checkpoint", {"error": "torn"})]
