"""What the watch of GPUs logs, and how often."""

import asyncio

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader.messages import Described, Xid
from nodedevice_common.paced_log import SUBJECT_AT_ONCE

from tests.fakes.gpu_watch import BOTH, MIG, OLD, ONE, TWO, Play
from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time


class TestLog:
    @virtual_time
    async def test_of_changes(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG", "nodedevice_agent.plugins.nvml.watch")
        divided = Described([ONE, msgspec.structs.replace(TWO, instances=MIG)])
        messages = [OLD, Xid("GPU-1", 79, 2), divided, Described([ONE, TWO]), BOTH]
        node = await play([BOTH, *messages], mig="mixed")
        node.clear("GPU-1")
        node.files[0].see()
        await asyncio.sleep(1)
        found = {"gpus": 2, "driver": "580.1", "unnamed": []}
        lines = log_lines(caplog.records)
        text = lines[2][2].pop("error")
        assert "79" in text
        assert lines == [
            ("INFO", "GPUs found", found),
            (
                "WARNING",
                "GPU reported Xid",
                {"uuid": "GPU-1", "xid": 79, "meaning": "GPU has fallen off the bus", "count": 2},
            ),
            ("ERROR", "GPU is unhealthy", {"uuid": "GPU-1", "how": "", "reason": "Xid79"}),
            ("INFO", "GPU in MIG mode", {"uuid": "GPU-2", "profiles": ["1g.10gb", "1g.10gb"], "mig": "mixed"}),
            ("INFO", "GPU is not in MIG mode any more", {"uuid": "GPU-2"}),
            # the same ones
            ("DEBUG", "GPUs found", found),
            (
                "INFO",
                "GPU is healthy again or was removed",
                {"uuid": "GPU-1", "how": "an administrator cleared it"},
            ),
        ]

    @virtual_time
    async def test_of_xids_is_bounded(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        xid = Xid("GPU-1", 31, 5, Place(3, 0))
        await play([BOTH, OLD, *[xid] * 100])
        lines = [fields for _, message, fields in log_lines(caplog.records) if message == "GPU reported Xid"]
        assert [(fields["count"], fields["gpu_instance"]) for fields in lines] == [(5, 3)] * SUBJECT_AT_ONCE
