"""A file of the host that cannot be read now is the one that it was: a GPU does not lack it, and has no other identity."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nodedevice_agent.plugins.nvml import host_files
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS

from tests.fakes.sysfs import PCI, FakeSysfs
from tests.unit.node_agent.plugins.generic.test_unread import CALLS, ERRORS, failing
from tests.unit.node_agent.plugins.nvml.sources import place

BUS_ID = "0000:3b:00.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    host, card = FakeSysfs(tmp_path), f"{PCI}/{BUS_ID}"
    host.pci(card)
    for name, number in (("card0", "226:0"), ("renderD128", "226:128")):
        host.node(f"{card}/drm/{name}", "drm", number, name=f"dri/{name}", parent=card)
    place(tmp_path, CAPABILITY_MINORS).write_text("gpu0/gi1/access 3\n")
    (tmp_path / "dev/nvidia0").symlink_to("/dev/null")
    return tmp_path


READS: dict[str, Callable[[str], object]] = {
    "a device file": lambda root: host_files.number_of(root, "/dev/nvidia0"),
    "capabilities": host_files.capabilities,
    "graphics": lambda root: host_files.graphics_of(root, [Gpu("GPU-a", pci_bus_id=BUS_ID)]),
}


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.__getitem__)
@pytest.mark.parametrize("call", [*CALLS, "io"])
@pytest.mark.parametrize("read", READS)
def test_what_was_known_counts(root: Path, read: str, call: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = READS[read](str(root))
    assert before
    if call == "io":
        # pathlib's
        def refuse(self: Path, *_: object, **__: object) -> str:
            raise OSError(number, os.strerror(number), str(self))

        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_text", refuse)
            assert READS[read](str(root)) == before
    else:
        with failing(root, call, number):
            assert READS[read](str(root)) == before
    assert READS[read](str(root)) == before


def test_what_is_not_there_is_not_there(root: Path) -> None:
    assert host_files.number_of(str(root), "/dev/nvidia0")
    (root / "dev/nvidia0").unlink()
    assert host_files.number_of(str(root), "/dev/nvidia0") == ""
    with failing(root, "stat", errno.EIO):
        assert host_files.number_of(str(root), "/dev/nvidia0") == ""
