"""Which NUMA node a device file is near: that of the controller, however many steps below it the device is."""

import os
from pathlib import Path

import pytest
from nodedevice_agent.plugins.generic.files import found_file

_CONTROLLER = "devices/pci0000:40/0000:40:00.0/0000:41:01.0"
# each as sysfs of Linux 6.1 has it
_DEPTHS = {
    "nvme": "nvme/nvme0/nvme0n1",
    "usb serial port": "usb3/3-2/3-2:1.0/ttyUSB0/tty/ttyUSB0",
    "usb disk behind a hub": "usb3/3-1/3-1.4/3-1.4:1.0/host0/target0:0:0/0:0:0:0/block/sda/sda1",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one device file, which is that of this machine's /dev/null: 1:3."""
    for name in ("dev", "sys/dev/char", f"sys/{_CONTROLLER}"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "dev/thing").symlink_to(os.devnull)
    return tmp_path


def numa_nodes(root: Path) -> tuple[int, ...]:
    found = found_file(str(root), "/dev/thing")
    assert found is not None
    return found.numa_nodes


def place(root: Path, below: str) -> None:
    (root / "sys" / _CONTROLLER / below).mkdir(parents=True, exist_ok=True)
    (root / "sys/dev/char/1:3").symlink_to(f"../../{_CONTROLLER}/{below}")


@pytest.mark.parametrize("below", _DEPTHS.values(), ids=_DEPTHS.keys())
@pytest.mark.parametrize(
    ("text", "nodes"), [("1\n", (1,)), ("0\n", (0,)), ("-1\n", ()), ("far away\n", ()), (None, ())]
)
def test_that_of_the_controller(root: Path, below: str, text: str | None, nodes: tuple[int, ...]) -> None:
    place(root, below)
    if text is not None:
        (root / "sys" / _CONTROLLER / "numa_node").write_text(text)
    assert numa_nodes(root) == nodes


def test_none_where_sysfs_does_not_know_it(root: Path) -> None:
    assert numa_nodes(root) == ()
    (root / "sys/dev/char/1:3").symlink_to("1:3")
    assert numa_nodes(root) == ()
