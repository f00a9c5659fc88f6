"""Reads the PCI bus from the kernel, independent of the driver."""

from pathlib import Path

from nodedevice_agent.lib.filesystem import names_in
from nodedevice_agent.lib.patient_reads import ask

_VENDOR = "0x10de"


def has_nvidia_device(devices: Path, class_prefix: str) -> bool:
    """Whether a device of NVIDIA has a class that begins so. devices: /sys/bus/pci/devices; False when it cannot be read."""
    return any(_is_nvidias(devices / name, class_prefix) for name in names_in(str(devices)))


def _is_nvidias(device: Path, class_prefix: str) -> bool:
    try:
        vendor, its_class = (ask(_text, str(device / name)) for name in ("vendor", "class"))
    except (OSError, UnicodeDecodeError):
        return False
    return vendor == _VENDOR and its_class.startswith(class_prefix)


def _text(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()
