"""What the watch of GPUs logs, and how often."""

import asyncio
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader.messages import Described, Found, Xid
from nodedevice_common.paced_log import SUBJECT_AT_ONCE

from tests.fakes.gpu_watch import ABSENT, BOTH, BROKEN, END, FINE, MIG, OLD, ONE, TWO, Play
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

    @pytest.mark.parametrize(
        ("second", "level"),
        [
            (BOTH, "DEBUG"),
            (Found("580.2", [ONE, TWO]), "INFO"),
            (Found("580.1", [ONE]), "INFO"),
            (Found("580.1", [ONE, msgspec.structs.replace(TWO, uuid="GPU-3")]), "INFO"),
            (Found("580.1", [ONE, TWO], unnamed=["another"]), "INFO"),
            (Found("580.1", [TWO, ONE]), "DEBUG"),
        ],
    )
    @virtual_time
    async def test_an_inventory_like_the_last_one_is_no_news(
        self, play: Play, caplog: pytest.LogCaptureFixture, second: Found, level: str
    ) -> None:
        caplog.set_level("DEBUG", "nodedevice_agent.plugins.nvml.watch")
        await play([BOTH, second])
        assert [line[0] for line in log_lines(caplog.records) if line[1] == "GPUs found"] == ["INFO", level]

    @pytest.mark.parametrize(
        ("is_plugged", "line"),
        [
            (True, ("ERROR", "GPUs cannot be read", {"reason": "NoGpu", "error": ABSENT.message})),
            (False, ("INFO", "no GPU found; the nvml plugin is idle", {"reason": "NoGpu", "error": ABSENT.message})),
        ],
    )
    @virtual_time
    async def test_of_a_driver_that_cannot_be_read_is_once(
        self, play: Play, caplog: pytest.LogCaptureFixture, is_plugged: bool, line: Any
    ) -> None:
        caplog.set_level("INFO")
        await play([ABSENT, END], [ABSENT, END], is_plugged=is_plugged)
        await asyncio.sleep(400)
        lines = log_lines(caplog.records)
        assert lines == [line]

    @virtual_time
    async def test_gpus_that_are_back_are_news(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        await play([BOTH, FINE, BROKEN, END], [BOTH, FINE])
        await asyncio.sleep(60)
        assert [line[:2] for line in log_lines(caplog.records)] == [
            ("INFO", "GPUs found"),
            ("ERROR", "GPUs cannot be read"),
            ("INFO", "GPUs found"),
        ]
