"""What held devices are, the scopes of built-in plugins and the device files of answers survive, and never make a file corrupt.

checkpoints/agent-without-identities.json is of an agent that kept none of these, and only the reasons of cordons; agents of that
kind ignore what they do not know.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from nodedevice_agent.checkpoint.fields import MAX_FILES, MAX_TOKEN_CHARACTERS, MAX_TOKENS
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.checkpoint.journal import encode_change, replayed
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, JournalMark
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons
from nodedevice_agent.identity import Identity

from tests.unit.node_agent.checkpoint.samples import GPU, START, base, line, sample

TTY = "example.com/tty"
STICK = Identity(("c188:0", "usb 0403:6001 A9", "/devices/pci0000:00/1-1"))
SHARED = Identity(("GPU-1234",), is_shared=True)
FILES = (("/dev/serial/by-id/usb-é<", "c188:0"), ("/dev/ttyUSB0", "c188:0"))
NEW_FIELDS = ("Identities", "Scopes", "Files")


def held(*device_ids: str, uid: str = "uid-a", files: tuple[tuple[str, str], ...] = ()) -> Allocation:
    return Allocation(uid, "main", TTY, {-1: device_ids}, b"ok", files=files)


FULL = Checkpoint(
    (held("t0", files=FILES), held("t1", uid="uid-b")),
    {TTY: ("t0", "t1"), GPU: ("g0",)},
    identities={TTY: {"t0": STICK, "t1": Identity(("c188:1",))}, GPU: {"g0": SHARED}},
    scopes={TTY: "generic", GPU: "nvml"},
)


def without_new_fields(checkpoint: Checkpoint) -> Checkpoint:
    bare = tuple(structs.replace(a, files=()) for a in checkpoint.allocations)
    return structs.replace(checkpoint, allocations=bare, identities={}, scopes={})


_PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)
_TOKENS = st.lists(_PRINTABLE, min_size=1, max_size=4).map(tuple)
_IDENTITIES = st.dictionaries(
    st.sampled_from([GPU, TTY]),
    st.dictionaries(_PRINTABLE, st.builds(Identity, _TOKENS, st.booleans()), min_size=1, max_size=3),
)
_SCOPES = st.dictionaries(st.sampled_from([GPU, TTY]), _PRINTABLE)
_FILES = st.lists(st.tuples(_PRINTABLE.map("/dev/{}".format), st.sampled_from(["c1:3", "b8:0"])), max_size=3)
_ALLOCATIONS = st.lists(_FILES.map(lambda files: tuple(sorted(set(files)))), max_size=3).map(
    lambda all_files: tuple(held(f"t{n}", uid=f"uid-{n}", files=files) for n, files in enumerate(all_files))
)
CHECKPOINTS = st.builds(Checkpoint, _ALLOCATIONS, identities=_IDENTITIES, scopes=_SCOPES)


@given(CHECKPOINTS)
def test_a_file_is_read_again_and_by_an_older_agent_as_it_would_have_written_it(written: Checkpoint) -> None:
    text = encode(written)
    assert decode(text) == written
    known = {name: value for name, value in json.loads(text).items() if name not in NEW_FIELDS}
    assert json.dumps(known) == json.dumps(json.loads(encode(without_new_fields(written))))


def test_the_fields_are_outside_the_checksum_and_left_out_where_empty() -> None:
    whole, bare = json.loads(encode(FULL)), json.loads(encode(without_new_fields(FULL)))
    assert whole["Checksum"] == bare["Checksum"]
    assert {name for name in NEW_FIELDS if name in bare} == set()
    assert whole["Identities"][GPU] == {"g0": {"Tokens": ["GPU-1234"], "IsShared": True}}
    assert whole["Identities"][TTY]["t1"] == {"Tokens": ["c188:1"]}
    assert whole["Files"] == [[[*file] for file in FILES], []]
    assert whole["Scopes"] == {TTY: "generic", GPU: "nvml"}


def test_a_file_of_an_older_agent() -> None:
    found = decode(text := sample("agent-without-identities"))
    shown = [(a.device_ids, a.since, a.files) for a in found.allocations]
    assert shown == [(("d0",), 1_767_614_400, ()), (("d1", "d2"), 0, ())]
    assert (found.identities, found.scopes) == ({}, {})
    assert found.part_sizes == {GPU: {"d0": "1Gi"}}
    assert found.cordons == {
        GPU: Cordons("uid-nd", {"d3": Cordon("fan")}, {"d2": Cordon()}),
        "example.com/nic": Cordons("uid-ne", {"*": Cordon("loose cable")}),
    }
    assert encode(found) == text


def read_with(name: str, written: Any) -> Checkpoint:
    """The full checkpoint, with something else as one of its fields. Nothing else of it changes."""
    found = decode(json.dumps({**json.loads(encode(FULL)), name: written}))
    assert without_new_fields(found) == without_new_fields(FULL)
    return found


MOST_TOKENS, LONGEST_TOKEN = [f"c1:{n}" for n in range(MAX_TOKENS)], "é" * MAX_TOKEN_CHARACTERS


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, {}, id="null"),
        pytest.param("t0", {}, id="a text"),
        pytest.param([{"t0": {"Tokens": ["c1:1"]}}], {}, id="a list"),
        pytest.param({TTY: ["t0"]}, {}, id="a list of a resource"),
        pytest.param({"tty": {"t0": {"Tokens": ["c1:1"]}}}, {}, id="no resource name"),
        pytest.param({TTY: {"t0": {"Tokens": []}}}, {}, id="no token"),
        pytest.param({TTY: {"": {"Tokens": ["c1:1"]}, "a\n": {"Tokens": ["c1:1"]}}}, {}, id="no device ID"),
        pytest.param({TTY: {"t0": {"Tokens": "c1:1"}}}, {}, id="tokens in one text"),
        pytest.param({TTY: {"t0": {"Tokens": ["c1:1", 1]}}}, {}, id="a number as token"),
        pytest.param({TTY: {"t0": {"Tokens": ["c1:1", ""]}}}, {}, id="an empty token"),
        pytest.param({TTY: {"t0": {"Tokens": ["c1:1\n"]}}}, {}, id="a line break"),
        pytest.param({TTY: {"t0": {"Tokens": ["c1:1"], "IsShared": "yes"}}}, {}, id="shared: a text"),
        pytest.param({TTY: {"t0": {"Tokens": ["c1:x", *MOST_TOKENS]}}}, {}, id="too many tokens"),
        pytest.param({TTY: {"t0": {"Tokens": [LONGEST_TOKEN + "x"]}}}, {}, id="a token that is too long"),
        pytest.param({TTY: {"t0": {"Tokens": MOST_TOKENS}}}, {"t0": MOST_TOKENS}, id="the most"),
        pytest.param({TTY: {"t0": {"Tokens": [LONGEST_TOKEN]}}}, {"t0": [LONGEST_TOKEN]}, id="the longest"),
        pytest.param({TTY: {"t0": 7, "t1": {"Tokens": ["c1:1"], "Later": 1}}, GPU: 7}, {"t1": ["c1:1"]}, id="the rest"),
    ],
)
def test_an_invalid_identity_is_ignored(written: Any, read: dict[str, list[str]]) -> None:
    known = {device_id: Identity(tuple(tokens)) for device_id, tokens in read.items()}
    assert read_with("Identities", written).identities == ({TTY: known} if read else {})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, {}, id="null"),
        pytest.param([TTY], {}, id="a list"),
        pytest.param({TTY: 7, GPU: "nvml"}, {GPU: "nvml"}, id="what is wrong takes nothing along"),
        pytest.param({TTY: "", GPU: "built-in a.com/b"}, {GPU: "built-in a.com/b"}, id="empty, and one of a plugin"),
        pytest.param({TTY: "x\u200b", GPU: "x\n"}, {}, id="not printable"),
        pytest.param({TTY: "x" * 401, GPU: "x" * 400}, {GPU: "x" * 400}, id="too long, and the longest"),
        pytest.param({"tty": "generic"}, {}, id="no resource name"),
    ],
)
def test_an_invalid_scope_is_ignored(written: Any, read: dict[str, str]) -> None:
    assert read_with("Scopes", written).scopes == read


ONE = ["/dev/ttyUSB0", "c188:0"]
MANY = [[f"/dev/{n:04}", "c1:3"] for n in range(MAX_FILES + 1)]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, [0, 0], id="null"),
        pytest.param({"0": [ONE]}, [0, 0], id="an object"),
        pytest.param([[ONE]], [0, 0], id="too few: whose they are, is not known"),
        pytest.param([[ONE], [ONE], [ONE]], [0, 0], id="too many"),
        pytest.param([ONE, [ONE]], [0, 1], id="no pairs"),
        pytest.param([[["/dev/a"]], [ONE]], [0, 1], id="no number"),
        pytest.param([[["/dev/a", 7]], [ONE]], [0, 1], id="a number that is not text"),
        pytest.param([[["", "c1:3"]], [["/dev/a", ""]]], [0, 0], id="empty"),
        pytest.param([[["/dev/a\n", "c1:3"]], [["/dev/a", "c\0"]]], [0, 0], id="not printable"),
        pytest.param([[["/" * 4097, "c1:3"]], [["/" * 4096, "c1:3"]]], [0, 1], id="an endless path, and the longest"),
        pytest.param([[["/dev/a", "c" * 33]], [["/dev/a", "c" * 32]]], [0, 1], id="an endless number"),
        pytest.param([MANY, MANY[1:]], [0, MAX_FILES], id="too many of one, and the most"),
        pytest.param([[ONE, ONE], [ONE]], [1, 1], id="twice"),
    ],
)
def test_invalid_files_are_not_known(written: Any, read: list[int]) -> None:
    assert [len(a.files) for a in read_with("Files", written).allocations] == read


def test_files_are_read_in_order() -> None:
    found = read_with("Files", [[["/dev/b", "c1:1"], ["/dev/a", "c1:2"]], []])
    assert found.allocations[0].files == (("/dev/a", "c1:2"), ("/dev/b", "c1:1"))


@given(CHECKPOINTS, CHECKPOINTS)
def test_an_older_agent_reads_the_line_as_it_would_have_written_it(before: Checkpoint, after: Checkpoint) -> None:
    """Or it is a line of nothing, where an older agent would have written none."""
    change = encode_change(before, after, JournalMark("ours", START.sequence + 1))
    older = {} if change is None else json.loads(change.partition(b" ")[2])
    for name in NEW_FIELDS:
        older.pop(name, None)
    found = replayed(base(without_new_fields(before)), line(**older))
    assert sorted(map(repr, found.allocations)) == sorted(map(repr, without_new_fields(after).allocations))
