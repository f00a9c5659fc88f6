"""Files of the simulated plugin that cannot be read or written: its devices stay, and it tries again soon."""

import errno
import os
from pathlib import Path

import pytest
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.simulated import control
from nodedevice_agent.plugins.simulated import source as simulated_source
from nodedevice_agent.plugins.simulated.devices import SimulatedState
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_common import tasks

from tests.fakes.background import background
from tests.fakes.polling import until

GPU = "example.com/gpu"
REFUSED = OSError(errno.EIO, os.strerror(errno.EIO))


async def test_a_state_file_that_cannot_be_read_is_read_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(simulated_source, "_RETRY_SECONDS", 0.01)
    read, failures = control.read_state, [REFUSED] * 3

    def failing(path: Path) -> SimulatedState:
        if failures:
            raise failures.pop()
        return read(path)

    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, count=2), tmp_path, watcher)
        await source.read()
        assert len(source.devices.latest) == 2
        async with background(source.run()):
            monkeypatch.setattr(simulated_source, "read_state", failing)
            source.reconfigure(SimulatedSettings(GPU, count=3))
            await until(lambda: len(source.devices.latest) == 3)
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ["ERROR"]


async def test_a_list_for_the_command_that_cannot_be_written_ends_no_plugin(tmp_path: Path) -> None:
    in_its_place = tmp_path / "simulated/example.com_gpu.devices.json"
    in_its_place.mkdir(parents=True)
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, count=2), tmp_path, watcher)
        await source.read()
        assert len(source.devices.latest) == 2
        (problem,) = tasks.problems()
        assert problem.startswith(f"list of simulated devices {GPU} fails")
        in_its_place.rmdir()
        await source.read()
    assert tasks.problems() == ()
    assert in_its_place.is_file()
