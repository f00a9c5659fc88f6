"""Checkpoint files, and journals beside a good one, of any content: a state that the agent can go on with, or CheckpointCorrupt."""

import base64
import contextlib
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest
from hypothesis import strategies as st
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import Data, checksum, decode, encode
from nodedevice_agent.checkpoint.journal import encode_change
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt, JournalMark
from nodedevice_agent.lib import filesystem
from nodedevice_api.names import node_device_name

from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import as_json, mostly, nearly, shaped, some, texts, values
from tests.robustness.fuzz.published import status_of

_GOOD = encode(
    Checkpoint(
        (
            Allocation("uid-1", "main", "example.com/gpu", {-1: ("a",), 0: ("b", "c")}, b"\x0a\x01"),
            Allocation("uid-2", "init", "example.com/gpu", {1: ("d",)}, None),
        ),
        {"example.com/gpu": ("a", "b", "c", "d", "e")},
        "boot",
    )
).encode()
_OLD = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":["a"],'
    b'"AllocResp":"CgA="}],"RegisteredDevices":{"example.com/gpu":["a"]}},"Checksum":0}'
)

_device_ids = some(mostly(st.sampled_from("abcdef"), texts))
_octets = st.binary(max_size=20).map(lambda octets: base64.b64encode(octets).decode())
_resource_names = mostly(st.sampled_from(["example.com/gpu", "example.com/nic"]), texts)
_entries = shaped(
    {
        "PodUID": st.one_of(st.sampled_from(["uid-1", "uid-2"]), texts),
        "ContainerName": texts,
        "ResourceName": _resource_names,
        "DeviceIDs": st.one_of(
            _device_ids, st.dictionaries(mostly(st.integers(-2, 70).map(str), texts), _device_ids, max_size=3)
        ),
        "AllocResp": st.one_of(st.none(), _octets),
    }
)
_data = shaped(
    {"PodDeviceEntries": some(_entries), "RegisteredDevices": st.dictionaries(_resource_names, _device_ids, max_size=3)}
)


def _go_on_with(checkpoint: Checkpoint, folder: Path) -> None:
    """What the agent does with it: starts, serves a pod, publishes every resource, and saves it again."""
    manager = DeviceManager(0.0, checkpoint, waits_for_cordons=True)
    for uid in ("uid-1", "uid-3"):
        manager.pod_events.seen(Pod(uid, "default", uid, (Container("main", limits={"example.com/gpu": 1}),)), 1.0)
    manager.tick(1000.0)
    for resource_name in manager.resources:
        node_device_name("node-a", resource_name)
        status_of(manager, resource_name)
    saved = manager.checkpoint()
    filesystem.replace_durably(folder / "again.json", encode(saved))
    read = decode((folder / "again.json").read_text(encoding="utf-8"))
    assert sorted(map(repr, read.allocations)) == sorted(map(repr, saved.allocations))


def read_and_go_on(state_dir: Path) -> Checkpoint | None:
    """None where it is refused."""
    try:
        found = checkpoint_file.read(state_dir)
    except CheckpointCorrupt:
        return None
    assert found is not None
    _go_on_with(found, state_dir)
    return found


@pytest.mark.parametrize("seeds", [pytest.param([_GOOD], id="version 2"), pytest.param([_OLD], id="version 1")])
def test_any_bytes(fuzz: Fuzzer, tmp_path: Path, seeds: list[bytes]) -> None:
    def check(content: bytes) -> None:
        (tmp_path / checkpoint_file.FILE_NAME).write_bytes(content)
        read_and_go_on(tmp_path)

    fuzz(check, nearly(seeds))


def test_any_content_with_the_right_checksum(fuzz: Fuzzer, tmp_path: Path) -> None:
    """What a checksum does not protect from: another program that writes what it wants, and sums it up right."""

    def check(data: Any) -> None:
        right = 0
        with contextlib.suppress(ValueError):
            right = checksum(msgspec.json.decode(as_json(data), type=Data))
        (tmp_path / checkpoint_file.FILE_NAME).write_bytes(as_json({"Data": data, "Checksum": right}))
        read_and_go_on(tmp_path)

    fuzz(check, _data)


def test_the_seed_itself_is_read() -> None:
    assert len(decode(_GOOD.decode()).allocations) == 2


# -- journals ------------------------------------------------------------------------------------------------------------


def _state(number: int) -> Checkpoint:
    allocations = tuple(
        Allocation(f"uid-{number + n}", "main", "example.com/gpu", {n: (f"d{n}",)}, b"\x0a\x01") for n in range(2)
    )
    return Checkpoint(allocations, {"example.com/gpu": ("d0", "d1", "a" * number)}, "boot")


def _line(number: int) -> bytes:
    line = encode_change(_state(number - 1), _state(number), JournalMark("ours", number))
    assert line is not None
    return line


_JOURNAL = b"".join(map(_line, range(1, 5)))
_journal_lines = st.lists(
    shaped(
        {
            "Generation": st.just("ours"),
            "Sequence": mostly(st.integers(0, 3)),
            "Released": some(some(mostly(st.sampled_from(["uid-0", "main", "example.com/gpu"]), texts))),
            "PodDeviceEntries": some(_entries),
            "RegisteredDevices": st.dictionaries(_resource_names, st.one_of(st.none(), _device_ids), max_size=3),
            "Endpoints": some(shaped({"ResourceName": _resource_names, "Endpoint": texts})),
            "PreStarts": values,
            "Since": values,
            "Files": some(some(some(texts))),
            "Identities": st.dictionaries(
                _resource_names, st.dictionaries(texts, shaped({"Tokens": some(texts), "IsShared": values})), max_size=2
            ),
            "Scopes": st.dictionaries(_resource_names, values, max_size=2),
            "Cordons": st.dictionaries(
                _resource_names, shaped({"UID": texts, "InSpec": values, "Remembered": values}), max_size=2
            ),
            "Unlisted": some(
                shaped({"PodUID": texts, "ContainerName": texts, "ContainerID": texts, "SandboxID": texts})
            ),
        }
    ),
    max_size=3,
)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Its checkpoint holds nothing of the journal."""
    checkpoint = encode(Checkpoint(_state(0).allocations, _state(0).registered, journal=JournalMark("ours", 0)))
    (tmp_path / checkpoint_file.FILE_NAME).write_text(checkpoint)
    return tmp_path


def _with_journal(state_dir: Path, journal: bytes) -> Checkpoint | None:
    checkpoint_file.journal_path(state_dir / checkpoint_file.FILE_NAME).write_bytes(journal)
    return read_and_go_on(state_dir)


def test_any_bytes_as_journal(fuzz: Fuzzer, state_dir: Path) -> None:
    """Changed, cut, doubled: also then it is one of the states that were."""
    were = {repr(sorted(map(repr, _state(number).allocations))) for number in range(5)}

    def check(content: bytes) -> None:
        found = _with_journal(state_dir, content)
        assert found is None or repr(sorted(map(repr, found.allocations))) in were

    fuzz(check, nearly([_JOURNAL, _JOURNAL + bytes(100), _line(1), _line(1) + _JOURNAL]))


def test_one_flipped_bit_of_a_journal(fuzz: Fuzzer, state_dir: Path) -> None:
    """In any line, also the last one: its content may be published, so it must not be dropped."""

    def check(place: tuple[int, int, bytes]) -> None:
        position, bit, room = place
        flipped = bytearray(_JOURNAL)
        flipped[position] ^= 1 << bit
        assert _with_journal(state_dir, bytes(flipped) + room) is None

    rooms = st.sampled_from([b"", bytes(100)])
    fuzz(check, st.tuples(st.integers(0, len(_JOURNAL) - 1), st.integers(0, 7), rooms))


def test_any_lines_with_the_right_checksum(fuzz: Fuzzer, state_dir: Path) -> None:
    def check(lines: Any) -> None:
        journal = b""
        for line in lines:
            content = as_json(line)
            journal += b"%08x %b\n" % (crc32(content), content)
        _with_journal(state_dir, journal)

    fuzz(check, _journal_lines)


def test_the_journal_itself_is_read(state_dir: Path) -> None:
    found = _with_journal(state_dir, _JOURNAL + bytes(100))
    assert found is not None
    assert found.journal == JournalMark("ours", 4)
