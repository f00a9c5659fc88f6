"""Which devices of NVIDIA the PCI bus has."""

from pathlib import Path

import pytest
from nodedevice_agent.plugins.nvml.pci_bus import has_nvidia_device


@pytest.mark.parametrize(
    ("vendor", "kind", "has"),
    [
        (b"0x10de\n", b"0x030200\n", True),
        (b"0x10de\n", b"0x040300\n", False),
        (b"0x8086\n", b"0x030200\n", False),
        (None, b"0x030200\n", False),
        (b"0x10de\n", None, False),
        (b"\xff\n", b"0x030200\n", False),
    ],
)
def test_of_a_class(tmp_path: Path, vendor: bytes | None, kind: bytes | None, has: bool) -> None:
    assert not has_nvidia_device(tmp_path / "none", "0x03")
    for name, content in {"vendor": vendor, "class": kind}.items():
        if content is not None:
            device = tmp_path / "0000:1b:00.0"
            device.mkdir(exist_ok=True)
            (device / name).write_bytes(content)
    assert has_nvidia_device(tmp_path, "0x03") is has
