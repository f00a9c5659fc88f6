import pytest
from nodedevice_agent.plugins.generic.uevents import concerns_devices


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
