"""A kernel is taken out of its boot image; what is none is refused by name."""

import lzma
import struct

import pytest

from hack.cluster.errors import BinaryError
from hack.machine.kernel import unpacked

_KERNEL = b"\x7fELF" + bytes(range(256)) * 40
_SETUP_SECTORS = 3


def boot_image(payload: bytes) -> bytes:
    """The header as the boot protocol has it: sectors of setup, and where behind them the payload lies."""
    offset = 64
    image = bytearray((_SETUP_SECTORS + 1) * 512 + offset)
    image[0x1F1] = _SETUP_SECTORS
    struct.pack_into("<II", image, 0x248, offset, len(payload))
    return bytes(image) + payload + b"rest"


def test_the_kernel_is_unpacked_whatever_lies_behind_it() -> None:
    # the kernel's build appends the length
    payload = lzma.compress(_KERNEL) + struct.pack("<I", len(_KERNEL))
    assert unpacked(boot_image(payload)) == _KERNEL


def test_an_unknown_compression_is_named() -> None:
    with pytest.raises(BinaryError, match="unknown compression 50617373"):
        unpacked(boot_image(b"Passau" * 9))
