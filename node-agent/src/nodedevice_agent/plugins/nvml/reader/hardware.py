"""Whether this machine has an NVIDIA GPU at all, whatever its driver says: what stands on the PCI bus."""

from pathlib import Path

_VENDOR = "0x10de"
# display controllers: VGA and 3D
_CLASS = "0x03"


def has_gpu(host_root: str) -> bool:
    """From sysfs; False where that cannot be read."""
    devices = Path(host_root) / "sys/bus/pci/devices"
    try:
        return any(_is_gpu(device) for device in devices.iterdir())
    except OSError:
        return False


def _is_gpu(device: Path) -> bool:
    try:
        vendor = (device / "vendor").read_text(encoding="ascii").strip()
        return vendor == _VENDOR and (device / "class").read_text(encoding="ascii").startswith(_CLASS)
    except OSError:
        return False
