"""Selections of the generic plugin over real sockets: a fake host, whose udevd is the test, and the real kernel's devices."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.generic import source

from tests.fakes.device_manager import Manager
from tests.fakes.sysfs import FakeSysfs
from tests.integration.builtin_plugins.plugins import SERIAL, asking_for, running

# linux/loop.h
_LOOP_CTL_ADD, _LOOP_CTL_REMOVE = 0x4C80, 0x4C81
_LOOP = 77


@pytest.fixture
def sysfs(host: Path) -> FakeSysfs:
    return FakeSysfs(host)


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen is seen by an event."""
    monkeypatch.setattr(source, "_RESCAN_SECONDS", 3600)


@pytest.fixture
def loop_control() -> Iterator[int]:
    """The kernel's way to make block devices from nothing. The device is removed at the end."""
    try:
        control = os.open("/dev/loop-control", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"no loop devices: {error}")
    yield control
    # unless the test did
    with contextlib.suppress(OSError):
        fcntl.ioctl(control, _LOOP_CTL_REMOVE, _LOOP)
    os.close(control)


def selecting(root: str, **select: Any) -> dict[str, Any]:
    return {"hostRoot": root, "generic": [{"resourceName": SERIAL, "groups": [{"select": select}]}]}


def processed(sysfs: FakeSysfs, number: int, serial: str) -> None:
    """What udevd writes of a dongle."""
    for each in (f"c240:{number}", f"c188:{number}"):
        sysfs.udev(each, ID_SERIAL=serial)


@pytest.mark.usefixtures("no_poll")
async def test_a_dongle_is_pulled_and_plugged_in_elsewhere(
    manager: Manager, plugin_dir: Path, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    sysfs.dongle("1-1", 0, serial="B")
    processed(sysfs, 0, "FTDI_B")
    async with running(selecting(str(sysfs.root), udev={"ID_SERIAL": "FTDI_*"}), plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["0403-6001-B"])
        sysfs.dongle("1-2.3", 1, serial="A5XK3RJT")
        processed(sysfs, 1, "FTDI_A")
        await manager.until_listed(SERIAL, ["0403-6001-A5XK3RJT", "0403-6001-B"])
        sysfs.unplug("1-2.3")
        await manager.until_listed(SERIAL, ["0403-6001-B"])
        sysfs.dongle("1-4", 7, serial="A5XK3RJT")
        processed(sysfs, 7, "FTDI_A")
        await manager.until_listed(SERIAL, ["0403-6001-A5XK3RJT", "0403-6001-B"])
        request = asking_for(["0403-6001-A5XK3RJT"])
        (answer,) = (await manager.dial(SERIAL).Allocate(request)).container_responses
    assert [(each.host_path, each.container_path) for each in answer.devices] == [
        ("/dev/hidraw7", "/dev/hidraw7"),
        ("/dev/ttyUSB7", "/dev/ttyUSB7"),
    ]


@pytest.mark.usefixtures("no_poll")
async def test_the_kernel_reports_a_device(
    manager: Manager, plugin_dir: Path, tmp_path: Path, loop_control: int
) -> None:
    async with running(selecting("/", subsystems=["block"]), plugin_dir, tmp_path):
        await manager.until(lambda: manager.latest(SERIAL) is not None)
        fcntl.ioctl(loop_control, _LOOP_CTL_ADD, _LOOP)
        await manager.until(lambda: f"loop{_LOOP}" in (manager.latest(SERIAL) or {}))
        fcntl.ioctl(loop_control, _LOOP_CTL_REMOVE, _LOOP)
        await manager.until(lambda: f"loop{_LOOP}" not in (manager.latest(SERIAL) or {}))
