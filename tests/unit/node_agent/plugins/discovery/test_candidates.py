"""What is made of facts: order, names of resources, and what is offered of whom, with values alone."""

from typing import Any

import pytest
from nodedevice_agent.plugins.discovery.candidates import Facts, FileFacts, PciDevice, candidates
from nodedevice_agent.plugins.generic.functions import Function, Node, UsbDevice

PLACE = "/devices/pci0000:00/0000:00:02.0"


def file(name: str, subsystem: str, kind: str = "c", **known: Any) -> FileFacts:
    """A file that is open to all, unless it is known as another one."""
    node = Node(f"{kind}1:{len(name)}", f"/dev/{name}", f"{PLACE}/{name}", subsystem, PLACE)
    return FileFacts(node, **{"mode": 0o20666, **known})


def facts(*functions: tuple[str, UsbDevice | None, list[FileFacts]], **more: Any) -> Facts:
    """Of devices at these places with these files."""
    made = tuple(Function(place, usb, tuple(each.node for each in files)) for place, usb, files in functions)
    return Facts(made, {each.node.path: each for _, _, files in functions for each in files}, **more)


def usb(port: str, serial: str = "") -> UsbDevice:
    return UsbDevice(f"/usb/{port}", port, "0403", "6001", serial)


def sticks(*labels: str) -> Facts:
    """One serial port for each, in the order of their ports."""
    devices = {f"1-{number}": label for number, label in enumerate(labels, 1)}
    return facts(
        *((f"/usb/{port}", usb(port), [file(f"ttyUSB{port}", "tty")]) for port in devices),
        labels={f"/usb/{port}": label for port, label in devices.items()},
    )


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["Stick", "Stick", "Stick"], ["stick", "stick-2", "stick-3"]),
        (["A  b/C"], ["a-b-c"]),
        (["(x)"], ["x"]),
        (["é"], ["serial"]),
        (["a" * 60], ["a" * 40]),
        ([f"{'a' * 39} b"], ["a" * 39]),
    ],
)
def test_a_resource_is_named_as_its_device(labels: list[str], names: list[str]) -> None:
    found = [resource["resourceName"] for each in candidates(sticks(*labels)) for resource in each.plugins["generic"]]
    assert found == [f"example.com/{name}" for name in names]


def test_of_a_gpu_only_what_computes_or_draws_is_offered() -> None:
    pci = (PciDevice("0000:00:02.0", PLACE, "1002", "740f", "amdgpu"),)
    files = [file("dri/card0", "drm"), file("fb0", "graphics"), file("accel/accel0", "accel")]
    [found] = candidates(facts((PLACE, None, files), pci_devices=pci))
    assert [each.path for each in found.files] == ["/dev/dri/card0", "/dev/fb0", "/dev/accel/accel0"]
    [resource] = found.plugins["generic"]
    offered = [{"path": "/dev/dri/card0"}, {"path": "/dev/accel/accel0"}, {"path": "/dev/kfd", "optional": True}]
    assert resource["groups"] == [{"paths": offered}]
