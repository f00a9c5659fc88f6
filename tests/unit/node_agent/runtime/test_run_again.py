"""What is run again after a failure does what it had to do before it."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodedevice_agent.kubelet import state_reader
from nodedevice_agent.kubelet.state_reader import KubeletDirectory, KubeletStateReader
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.runtime import device_numbers
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_common import tasks
from nodedevice_common.tasks import retried

from tests.fakes.background import background
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)


async def test_a_comparison_that_failed_is_made_without_another_change(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def given_files(_: object) -> tuple[()]:
        compared.append("asked")
        if len(compared) <= 2:
            raise RuntimeError("can't start new thread")
        return ()

    monkeypatch.setattr(device_numbers, "given_files", given_files)
    monkeypatch.setattr(device_numbers, "_SETTLE_SECONDS", 0.0)
    numbers = DeviceNumbers(cast(Any, SimpleNamespace()), lambda: None)
    async with background(retried("device numbers", numbers.run)):
        numbers.changed()
        await until(lambda: len(compared) == 3)


@virtual_time
async def test_what_of_the_kubelet_could_not_be_read_is_read_again_although_its_file_is_the_same(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "device-plugins").mkdir()
    done: list[float] = []

    async def read(reader: KubeletStateReader) -> None:
        reader._is_listed = True
        done.append(asyncio.get_running_loop().time())
        if len(done) == 2:
            raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(KubeletStateReader, "read", read)
    monkeypatch.setattr(state_reader, "_RESYNC_SECONDS", 3600.0)
    mirror: Any = SimpleNamespace(is_outdated=True)
    with FileWatcher() as watcher:
        directory = KubeletDirectory(tmp_path, tmp_path / "own")
        reader = KubeletStateReader(directory, mirror, cast(Any, None), watcher, lambda: None)
        async with background(retried("kubelet state", reader.run)):
            while len(done) < 2:
                reader.poke()
                await asyncio.sleep(1)
            mirror.is_outdated = False
            await asyncio.sleep(60)
            assert len(done) == 3
