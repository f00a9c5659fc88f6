"""Readers of the watch that end, fail or hang, and when one is asked to scan again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.reader.messages import Alive, Changed, Found, Xid
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed
from nodedevice_common.tasks import retried

from tests.fakes.background import background
from tests.fakes.gpu_watch import ABSENT, BOTH, BROKEN, END, FINE, LOST, ONE, Node, Play
from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time
EXITS = [BOTH, FINE, END]


class TestReaders:
    @pytest.mark.parametrize(
        ("scripts", "is_plugged", "started"),
        [
            pytest.param([EXITS] * 3, True, [0, 0.2, 0.6, 1.4], id="exits: a growing pause"),
            pytest.param([[BOTH, FINE, ReaderFailed("x")]] * 2, True, [0, 0.2, 0.6], id="fails"),
            pytest.param([EXITS, [BOTH, FINE, 61, END], EXITS], True, [0, 0.2, 61.4, 61.8], id="soon after a minute"),
            pytest.param([EXITS, [BOTH, 59, END]], True, [0, 0.2, 59.6], id="not quite a minute"),
            pytest.param([[BROKEN, END]] * 2, True, [0, 30, 60], id="no driver"),
            pytest.param([[ABSENT, END]] * 2, True, [0, 30, 60], id="no driver for a GPU on the bus"),
            pytest.param([[ABSENT, END]] * 2, False, [0, 300, 600], id="no GPU"),
            pytest.param([[BROKEN, END]] * 2, False, [0, 30, 60], id="a broken driver"),
            pytest.param([[BOTH, FINE, ABSENT, END]], False, [0, 30], id="GPUs that were there"),
            pytest.param([[BROKEN, BOTH, FINE, END]], True, [0, 0.2], id="a driver that works again"),
        ],
    )
    async def test_are_started_again(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, scripts: list[Any], is_plugged: bool, started: list[float]
    ) -> None:
        # without jitter
        monkeypatch.setattr("random.uniform", lambda low, high: high)
        monkeypatch.setattr("random.random", lambda: 1.0)
        node = await play(*scripts, is_plugged=is_plugged)
        await asyncio.sleep(1000)
        assert [round(at, 1) for at in node.started] == started
        assert [reader.ends for reader in node.readers[:-1]] == [1] * (len(started) - 1)

    async def test_gpus_are_unhealthy_while_none_can_be_started(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.scripts = [EXITS, *[[OSError("no more processes")]] * 3, [BOTH, FINE]]
        node.plug()
        async with background(retried("plugin", node.make().run)):
            await asyncio.sleep(4)
            assert node.unhealthy == set()
            await asyncio.sleep(2)
            assert (node.unhealthy, node.trouble) == ({"GPU-1", "GPU-2"}, "ReaderFailed")
            await asyncio.sleep(20)
            assert (node.unhealthy, node.trouble) == (set(), "")

    async def test_a_run_after_a_failure_waits_for_one_that_hangs(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.scripts = [[BOTH, FINE, 1, OSError("no more processes")], [BOTH, FINE]]
        node.plug()
        async with background(retried("plugin", node.make().run)):
            await asyncio.sleep(0.1)
            node.reader.has_ended = False
            await asyncio.sleep(100)
            assert (node.trouble, len(node.readers)) == ("DriverHangs", 1)
            node.readers[0].gone.set()
            await asyncio.sleep(10)
            assert (node.trouble, len(node.readers)) == ("", 2)

    @pytest.mark.parametrize("scripts", [[[]], [[1, END]] * 20], ids=["silent", "each fails, and the first counts"])
    async def test_gpus_that_no_reader_reports_become_unhealthy(self, play: Play, scripts: list[Any]) -> None:
        node = await play(EXITS, *scripts, rescanSeconds=1.0)
        await asyncio.sleep(4.9)
        assert (node.unhealthy, node.trouble) == (set(), "")
        await asyncio.sleep(0.2)
        assert (node.unhealthy, node.trouble) == ({"GPU-1", "GPU-2"}, "ReaderFailed")

    async def test_a_problem_of_the_driver_counts_at_once(self, play: Play) -> None:
        node = await play(EXITS, [BROKEN, 100], [])
        await asyncio.sleep(1)
        assert node.trouble == "DriverFailed"
        # and no failure of the reader replaces it
        await asyncio.sleep(20)
        assert node.trouble == "DriverFailed"

    async def test_nothing_is_left_of_a_watch_that_has_ended(self, tmp_path: Path) -> None:
        node = Node(tmp_path, handOver=["auto"])
        node.scripts = [EXITS]
        async with background(node.make().run()):
            while not node.served:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
        assert [each.is_closed for each in node.files] == [True, True]
        await asyncio.sleep(100)
        assert node.trouble == ""


class TestRescans:
    @pytest.mark.parametrize(
        ("script", "rescans"),
        [
            pytest.param([BOTH, *[5, FINE] * 40], [], id="all there"),
            pytest.param([BOTH, LOST, *[5, LOST] * 13], [30, 60], id="a lost GPU"),
            pytest.param([Found("1", [ONE], unnamed=["x"]), *[5, FINE] * 7], [30], id="an unnamed one"),
            pytest.param([Found("1", [ONE], is_partial=True), *[10, FINE] * 70], [600], id="links unknown"),
            pytest.param([Found("1", [ONE], is_partial=True), *[10, LOST] * 5], [30], id="both"),
            pytest.param([BOTH, FINE, Changed(), 0.5, FINE, 0.6, FINE, *[5, FINE] * 4], [1.1], id="other GPUs"),
            pytest.param([BOTH, LOST, 40, Alive(), Xid("GPU-1", 31, 1)], [], id="not between readings"),
        ],
    )
    async def test_come_when_they_may_help(self, play: Play, script: list[Any], rescans: list[float]) -> None:
        node = await play(script)
        await asyncio.sleep(1000)
        assert [round(at, 1) for at in node.reader.rescans] == rescans
