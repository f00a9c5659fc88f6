"""Device files of running containers that have become another device's."""

import asyncio
import logging
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings
from nodedevice_agent.devicemanager.runtime import RunningContainer, RuntimeDevice
from nodedevice_agent.runtime import device_numbers
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_agent.runtime.given_files import Number, given_files, is_renumbered

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, calls, pod

BY_ID, INSIDE = "/dev/serial/by-id/a", "/dev/port"
MINE, OTHER = ("c", 188, 0), ("c", 188, 1)


def with_file(path: str, host_path: str = BY_ID) -> ContainerEdits:
    return ContainerEdits(devices=(DeviceFile(path, host_path, "rw"),))


def running(host_path: str = BY_ID, number: Number = MINE) -> tuple[RuntimeScenario, RunningContainer]:
    """A pod runs with a device file that had that number on the host."""
    scenario = RuntimeScenario.with_plugin(1)
    scenario.sync()
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    scenario.happens("allocated", call.ticket, AllocateResponse(b"file", with_file(INSIDE, host_path)))
    made = scenario.create("p")
    shown = replace(made, devices=(RuntimeDevice(INSIDE, *number), RuntimeDevice("/dev/else", "c", 1, 3)))
    scenario.start(shown, "p")
    return scenario, shown


@pytest.mark.parametrize(
    ("now", "on_host", "is_another"),
    [
        pytest.param(MINE, [MINE], False, id="as before"),
        pytest.param(OTHER, [OTHER], True, id="it has another number"),
        pytest.param(OTHER, [MINE, OTHER], True, id="and the next device has its own"),
        pytest.param(None, [], False, id="pulled out, its number free"),
        pytest.param(None, [MINE], True, id="pulled out, and the next device has its number"),
    ],
)
def test_whether_a_file_is_another_devices(now: Number | None, on_host: list[Number], is_another: bool) -> None:
    scenario, _ = running()
    (file,) = given_files(scenario.manager)
    assert (file.resource_name, file.host_path, file.number) == (GPU, BY_ID, MINE)
    assert is_renumbered(file, now, on_host.__contains__) == is_another


def test_a_container_that_lacks_what_its_plugin_answers_now() -> None:
    """As after the plugin was asked again for a device that is back under another name."""
    scenario, _ = running()
    (allocation,) = scenario.manager.book
    scenario.manager.book.add(replace(allocation, edits=with_file("/dev/another")))
    (file,) = given_files(scenario.manager)
    assert file.number is None
    assert is_renumbered(file, OTHER, [].__contains__)
    assert not is_renumbered(file, None, [MINE].__contains__)


def test_what_the_pod_itself_mounts_there_is_no_device() -> None:
    scenario, _ = running()
    own = ContainerSettings(paths=frozenset([INSIDE]))
    scenario.see(pod("p", Container("main", limits={GPU: 1}, settings=own)))
    assert not list(given_files(scenario.manager))


def test_the_agents_next_start_knows_from_the_runtime() -> None:
    scenario, shown = running()
    (allocation,) = scenario.manager.book
    after = scenario.rebooted()
    after.manager.book.add(replace(allocation, edits=with_file(INSIDE)))
    after.sync(("p", shown))
    assert [file.number for file in given_files(after.manager)] == [MINE]


def test_a_container_that_has_ended_has_none() -> None:
    scenario, shown = running()
    scenario.end(shown, "p")
    assert not list(given_files(scenario.manager))


async def test_it_is_said_once_and_ends_with_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(device_numbers, "_SETTLE_SECONDS", 0.0)
    path = tmp_path / "port"
    path.symlink_to("/dev/null")
    null = os.stat("/dev/null").st_rdev
    scenario, shown = running(str(path), ("c", os.major(null), os.minor(null)))
    changes: asyncio.Queue[int] = asyncio.Queue()
    numbers = DeviceNumbers(scenario.manager, lambda: changes.put_nowait(len(numbers.of(GPU))))
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(numbers.run())
        numbers.is_due.set()
        path.unlink()
        path.symlink_to("/dev/zero")
        assert await changes.get() == 1
        (file,) = numbers.of(GPU)
        assert file.host_path == str(path)
        scenario.end(shown, "p")
        numbers.is_due.set()
        assert await changes.get() == 0
        task.cancel()
    assert [(r.levelno, r.__dict__["path"]) for r in caplog.records] == [(logging.ERROR, str(path))]
