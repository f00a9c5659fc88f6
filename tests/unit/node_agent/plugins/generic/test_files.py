"""Where links lead, and which NUMA node a device file is near: that of the controller, however far below it the device is."""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from nodedevice_agent.plugins.generic.files import found_file, kernel_path

from tests.fakes.sysfs import FakeSysfs

_CONTROLLER = "/devices/pci0000:40/0000:40:00.0/0000:41:01.0"
# each as sysfs of Linux 6.1 has it
_DEPTHS = {
    "nvme": "nvme/nvme0/nvme0n1",
    "usb serial port": "usb3/3-2/3-2:1.0/ttyUSB0/tty/ttyUSB0",
    "usb disk behind a hub": "usb3/3-1/3-1.4/3-1.4:1.0/host0/target0:0:0/0:0:0:0/block/sda/sda1",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one device file, which is that of this machine's /dev/null: 1:3."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/thing").symlink_to(os.devnull)
    return tmp_path


def numa_nodes(root: Path) -> tuple[int, ...]:
    found = found_file(str(root), "/dev/thing")
    assert found is not None
    return found.numa_nodes


@pytest.mark.parametrize("below", _DEPTHS.values(), ids=_DEPTHS.keys())
@pytest.mark.parametrize(("text", "nodes"), [("1\n", (1,)), ("0\n", (0,)), ("-1\n", ()), ("far\n", ()), (None, ())])
def test_that_of_the_controller(root: Path, below: str, text: str | None, nodes: tuple[int, ...]) -> None:
    host = FakeSysfs(root)
    host.node(f"{_CONTROLLER}/{below}", "tty", "1:3", name="another")
    if text is not None:
        (host.sys(_CONTROLLER) / "numa_node").write_text(text)
    assert numa_nodes(root) == nodes


def test_a_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number is one of block devices, which char devices have as well."""
    host = FakeSysfs(root)
    for subsystem, node in (("block", 1), ("tty", 0)):
        host.node(f"/devices/{subsystem}", subsystem, "8:1")
        (host.sys(f"/devices/{subsystem}") / "numa_node").write_text(f"{node}\n")
    disk = SimpleNamespace(st_mode=stat.S_IFBLK | 0o660, st_rdev=os.makedev(8, 1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda _: disk)
        found = found_file(str(root), "/dev/thing")
    assert found is not None
    assert (found.is_device, found.number, found.numa_nodes) == (True, "b8:1", (1,))


def test_what_is_no_device(root: Path) -> None:
    os.mkfifo(root / "dev/pipe")
    (root / "dev/folder").mkdir()
    (root / "dev/plain").touch()
    assert found_file(str(root), "/dev/pipe") is None
    found = [found_file(str(root), f"/dev/{name}") for name in ("folder", "plain")]
    assert [(f.is_device, f.is_directory, f.kernel_path, f.number) for f in found if f is not None] == [
        (False, True, "/dev/folder", ""),
        (False, False, "/dev/plain", ""),
    ]


@pytest.mark.parametrize(("count", "is_followed"), [(40, True), (41, False)])
def test_as_many_links_are_followed_as_the_kernel_follows(root: Path, count: int, is_followed: bool) -> None:
    (root / "dev/thing").unlink()
    (root / "dev/thing").touch()
    for number in range(count):
        (root / f"dev/link{number}").symlink_to("thing" if number == 0 else f"link{number - 1}")
    if is_followed:
        assert kernel_path(str(root), f"/dev/link{count - 1}") == "/dev/thing"
    else:
        with pytest.raises(OSError, match="Too many levels of symbolic links") as error:
            kernel_path(str(root), f"/dev/link{count - 1}")
        assert (error.value.errno, error.value.filename) == (errno.ELOOP, f"/dev/link{count - 1}")


@pytest.mark.parametrize("target", ["./thing", "..//dev/thing", "../dev/./thing", "../dev/../dev/thing", "/dev//thing"])
def test_a_link_leads_where_the_kernel_follows_it(root: Path, target: str) -> None:
    (root / "dev/thing").unlink()
    (root / "dev/thing").touch()
    (root / "dev/link").symlink_to(target)
    assert kernel_path(str(root), "/dev/link") == "/dev/thing"


def test_what_no_container_runtime_can_be_given_the_name_of_is_no_device(tmp_path: Path) -> None:
    """Names are octets; a runtime, the API and the plugin's own list take UTF-8."""
    (tmp_path / "dev").mkdir()
    odd = os.fsdecode(b"odd\xff")
    (tmp_path / "dev" / odd).touch()
    (tmp_path / "dev" / "plain").touch()
    (tmp_path / "dev" / "link").symlink_to(odd)
    assert found_file(str(tmp_path), f"/dev/{odd}") is None
    assert found_file(str(tmp_path), "/dev/link") is None
    assert found_file(str(tmp_path), "/dev/plain") is not None
