"""Checkpoint files: those in checkpoints/, and made ones with the right checksum.

checkpoints/ has files that kubelets wrote: version 1 and 2, and one whose content was changed after its checksum; and one that an
agent wrote before it kept since when containers have their devices.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from msgspec import structs
from nodedevice_agent.checkpoint import files
from nodedevice_agent.checkpoint.format import Data, checksum, decode, encode
from nodedevice_agent.checkpoint.long_files import decode_long
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, JournalMark

GPU = "example.com/gpu"
# the position in the journal up to which a checkpoint includes it
START = JournalMark("ours", 7)
SAMPLES = Path(__file__).parent / "checkpoints"
VERSION_2 = ["v2-no-pods", "v2-one-pod-no-numa", "v2-two-gpus-numa1"]
WHOLE = [*VERSION_2, "v1-two-pods"]


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text(encoding="utf-8").rstrip("\n")


def reads(text: str, size: int) -> Callable[[int], bytes]:
    """So many octets at a time, or fewer."""
    file = io.BytesIO(text.encode())
    return lambda most: file.read(min(size, most))


def in_pieces(size: int) -> Callable[[str], object]:
    return lambda text: decode_long(reads(text, size))


READERS = pytest.mark.parametrize(
    "read", [decode, in_pieces(8), in_pieces(1 << 20)], ids=["whole", "pieces", "one piece"]
)


def checksum_of(data: dict[str, Any]) -> int:
    """Raises for what has none."""
    return checksum(msgspec.json.decode(json.dumps(data), type=Data))


def of(data: dict[str, Any], **more: Any) -> str:
    """A file with the right checksum, whatever is in it; for what is so broken that it has none, with a wrong one."""
    try:
        summed = checksum_of(data)
    except Exception:  # whatever goes wrong, the file is to be refused
        summed = 1
    return json.dumps({"Data": data, "Checksum": summed, **more})


def held_by(uid: str) -> Checkpoint:
    return Checkpoint((Allocation(uid, "main", GPU, {-1: ("d0",)}, b"ok"),))


def read(folder: Path) -> Checkpoint:
    found = files.read(folder)
    assert found is not None
    return found


def base(state: Checkpoint) -> Checkpoint:
    """As a file at START gives it back."""
    return decode(encode(structs.replace(state, journal=START)))


def line(sequence: int | str = START.sequence + 1, **fields: Any) -> bytes:
    """Of a journal, and summed up right, whatever is in it."""
    content = json.dumps({"Generation": "ours", "Sequence": sequence, **fields}, separators=(",", ":")).encode()
    return b"%08x %b\n" % (crc32(content), content)


def entry(uid: str = "uid-a", ids: Any = None, **more: Any) -> dict[str, Any]:
    ids = {"0": ["d0"]} if ids is None else ids
    return {
        "PodUID": uid,
        "ContainerName": "main",
        "ResourceName": GPU,
        "DeviceIDs": ids,
        "AllocResp": "",
    } | more
