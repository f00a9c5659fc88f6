"""What the watch of GPUs logs, and how often."""

import pytest
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader.messages import Xid
from nodedevice_common.paced_log import SUBJECT_AT_ONCE

from tests.fakes.gpu_watch import BOTH, OLD, Play
from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time


class TestLog:
    @virtual_time
    async def test_of_xids_is_bounded(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        xid = Xid("GPU-1", 31, 5, Place(3, 0))
        await play([BOTH, OLD, *[xid] * 100])
        lines = [fields for _, message, fields in log_lines(caplog.records) if message == "GPU reported Xid"]
        assert [(fields["count"], fields["gpu_instance"]) for fields in lines] == [(5, 3)] * SUBJECT_AT_ONCE
