"""The kernel's reports of devices: which ones wake, and what becomes of them where no socket can be had."""

import errno
import os
import socket

import pytest
from nodedevice_agent.plugins.generic import uevents
from nodedevice_agent.plugins.generic.uevents import Uevents, concerns_devices

from tests.fakes.virtual_time import later, virtual_time


@pytest.mark.parametrize(
    ("message", "concerns"),
    [
        (b"add@/devices/x\0ACTION=add\0SUBSYSTEM=tty\0DEVNAME=ttyUSB0\0", True),
        (b"bind@/devices/x\0ACTION=bind\0SUBSYSTEM=usb\0DEVTYPE=usb_device\0", True),
        (b"change@/devices/x\0ACTION=change\0SUBSYSTEM=power_supply\0", False),
        (b"add@/module/x\0ACTION=add\0SUBSYSTEM=module\0", False),
        (b"", False),
        (b"\xff" * 100, False),
    ],
)
def test_reports_of_devices_wake(message: bytes, concerns: bool) -> None:
    assert concerns_devices(message) == concerns


@virtual_time
async def test_a_socket_that_cannot_be_had_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Descriptors may have run out; what has happened meanwhile is read once it is there."""
    tries, woken = list[int](), list[bool]()

    def bound() -> socket.socket:
        tries.append(len(tries))
        if len(tries) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    monkeypatch.setattr(uevents, "_bound", bound)
    with Uevents(lambda: woken.append(True)):
        await later(31)
        assert (len(tries), woken) == (2, [])
        await later(30)
        assert (len(tries), woken) == (3, [True])
        assert [record.levelname for record in caplog.records] == ["WARNING"]
    with Uevents(lambda: woken.append(True)):
        assert len(tries) == 4
    await later(100)
    assert len(tries) == 4
