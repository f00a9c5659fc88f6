"""Whatever happens to a journal, the result is a state that was saved, or an error; never a state older than a durable one."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.checkpoint.journal import encode_change, replayed
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt, JournalMark, PluginSocket
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_agent.identity import Identity

from tests.unit.node_agent.checkpoint.samples import GPU, START, base, entry, line

ROOM = bytes(300)
NOON = 1_767_614_400


def held(uid: str, *device_ids: str, response: bytes | None = b"ok", **more: Any) -> Allocation:
    return Allocation(uid, "main", GPU, {-1: device_ids}, response, **more)


# each device is of one pod or of another, as in a book of allocations
_HOLDERS = st.lists(st.sampled_from([None, "uid-a", "uid-b", "uid-\u00e9\u2028"]), min_size=4, max_size=4)
_IDS = st.lists(st.sampled_from(["d0", "d<"]), max_size=2).map(tuple)
_RESPONSES = st.one_of(st.none(), st.binary(max_size=4))
_SINCE = st.sampled_from([0, NOON, NOON + 1])

_NOTES = st.builds(
    Cordon, st.sampled_from(["", "fan <"]), st.sampled_from(["", "é <"]), st.sampled_from(["", "2026-01-01T12:00:00Z"])
)
# an ID is remembered only while it is not in the spec
_CORDONS = st.builds(
    Cordons,
    st.sampled_from(["", "uid"]),
    st.dictionaries(st.sampled_from(["d0", "*"]), _NOTES, max_size=2),
    st.dictionaries(st.sampled_from(["d1", "all"]), _NOTES, max_size=2),
)
_GONE = st.sampled_from([(), ("a.b/gone",)])
_POSSIBLE_HOLDERS = st.dictionaries(st.just(GPU), st.sampled_from([("",), ("uid-a", "uid-b")]))

_PART_SIZES = st.dictionaries(st.just(GPU), st.sampled_from([{}, {"GPU-<": "1024Mi", "b": "1/4"}]))
_IDENTITIES = st.dictionaries(
    st.just(GPU), st.sampled_from([{"d0": Identity(("c1:3",))}, {"d0": Identity(("é<",), True)}])
)
_SCOPES = st.sampled_from([{}, {GPU: "nvml"}])
_FILES = st.sampled_from([(), (("/dev/a", "c1:3"),), (("/dev/<", "c1:3"), ("/dev/é", "b8:0"))])


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    holders = draw(_HOLDERS)
    uids = sorted({uid for uid in holders if uid is not None}, reverse=draw(st.booleans()))
    allocations = []
    for uid in uids:
        ids = (f"d{n}" for n, h in enumerate(holders) if h == uid)
        allocations.append(held(uid, *ids, response=draw(_RESPONSES), since=draw(_SINCE), files=draw(_FILES)))
    return Checkpoint(
        tuple(allocations),
        draw(st.dictionaries(st.sampled_from([GPU, "a/b"]), _IDS, max_size=2)),
        "boot-1",
        draw(st.sampled_from([(), (PluginSocket(GPU, "gpu.sock"),)])),
        tuple((uid, "main", GPU) for uid in uids if draw(st.booleans())),
        tuple(UnlistedContainer(uid, "main", f"c-{uid}", "s") for uid in uids if draw(st.booleans())),
        draw(st.sampled_from([(), (StaticPod("0" * 32, "kube-system", "é<"),)])),
        draw(st.dictionaries(st.sampled_from([GPU, "a/b"]), _CORDONS, max_size=2)),
        possible_holders=draw(_POSSIBLE_HOLDERS),
        gone=draw(_GONE),
        part_sizes=draw(_PART_SIZES),
        identities=draw(_IDENTITIES),
        scopes=draw(_SCOPES),
    )


def ordered(checkpoint: Checkpoint) -> Checkpoint:
    """For a comparison: the order of entries and the mark have no meaning."""
    entries = sorted(checkpoint.allocations, key=lambda a: (a.pod_uid, a.container, a.resource_name))
    return structs.replace(checkpoint, allocations=tuple(entries), journal=None)


def journal_of(states: Sequence[Checkpoint]) -> tuple[list[bytes], list[Checkpoint]]:
    """A line for each change, and the state after each of them, the first one's first."""
    lines: list[bytes] = []
    after = [states[0]]
    for state in states[1:]:
        line = encode_change(after[-1], state, JournalMark("ours", START.sequence + len(lines) + 1))
        if line is not None:
            lines.append(line)
            after.append(state)
    return lines, after


STATES = st.lists(checkpoints(), min_size=1, max_size=6)


@given(STATES)
def test_all_lines_lead_to_the_last_state(states: list[Checkpoint]) -> None:
    lines, after = journal_of(states)
    found = replayed(base(states[0]), b"".join(lines) + ROOM)
    assert ordered(found) == ordered(after[-1])
    assert found.journal == JournalMark("ours", START.sequence + len(lines))


@given(STATES, st.data())
def test_a_cut_journal_gives_the_state_of_its_last_whole_line(states: list[Checkpoint], data: st.DataObject) -> None:
    lines, after = journal_of(states)
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    found = replayed(base(states[0]), whole[:cut] + data.draw(st.sampled_from([b"", ROOM])))
    # a line that lacks but its end is whole
    count = sum(len(b"".join(lines[: index + 1])) - 1 <= cut for index in range(len(lines)))
    assert ordered(found) == ordered(after[count])


def test_any_bit_of_any_line_that_is_flipped_is_found() -> None:
    states = [Checkpoint((held("uid-a", "d0"), held(f"uid-{n}", "d1"))) for n in range(4)]
    before = base(states[0])
    whole = bytearray(b"".join(journal_of(states)[0]))
    for room, position, bit in product((b"", ROOM), range(len(whole)), range(8)):
        whole[position] ^= 1 << bit
        with pytest.raises(CheckpointCorrupt):
            replayed(before, bytes(whole) + room)
        whole[position] ^= 1 << bit


def test_a_flipped_bit_behind_the_lines_changes_nothing() -> None:
    states = [Checkpoint((held(uid, "d0"),)) for uid in ("uid-a", "uid-b")]
    whole = bytearray(b"".join(journal_of(states)[0]) + ROOM)
    for position, bit in product(range(len(whole) - len(ROOM), len(whole)), range(8)):
        whole[position] ^= 1 << bit
        assert replayed(base(states[0]), bytes(whole)).allocations == states[1].allocations
        whole[position] ^= 1 << bit


def without_some(octets: bytes, data: st.DataObject) -> bytes:
    """As it was to be written over zeros, or zeros over it, block by block in any order, and the power went meanwhile."""
    size = data.draw(st.integers(1, 64))
    blocks = [octets[start : start + size] for start in range(0, len(octets), size)]
    return b"".join(block if data.draw(st.booleans()) else bytes(len(block)) for block in blocks)


@given(STATES, st.data())
def test_a_last_line_of_which_some_blocks_are_on_the_disk(states: list[Checkpoint], data: st.DataObject) -> None:
    """It was not reported as saved: it is there, or not, or a reason to recover from the API."""
    lines, after = journal_of([*states, Checkpoint((held("uid-z", "d9"),), {}, "boot-1")])
    torn = b"".join(lines[:-1]) + without_some(lines[-1], data) + ROOM
    try:
        found = replayed(base(states[0]), torn)
    except CheckpointCorrupt:
        return
    assert ordered(found) in (ordered(after[-2]), ordered(after[-1]))


@given(STATES, st.integers(0, 6))
def test_lines_that_the_checkpoint_includes_are_skipped(states: list[Checkpoint], count: int) -> None:
    """The whole file was written, and the journal not emptied before the end came."""
    lines, after = journal_of(states)
    count = min(count, len(lines))
    marked = structs.replace(after[count], journal=JournalMark("ours", START.sequence + count))
    assert ordered(replayed(decode(encode(marked)), b"".join(lines) + ROOM)) == ordered(after[-1])


@given(STATES)
def test_lines_of_another_process_are_skipped(states: list[Checkpoint]) -> None:
    lines, _ = journal_of(states)
    later = structs.replace(states[0], journal=JournalMark("theirs", 1))
    assert replayed(later, b"".join(lines) + ROOM) == later


@given(checkpoints())
def test_nothing_differs_where_nothing_changed(state: Checkpoint) -> None:
    assert encode_change(state, structs.replace(state, allocations=tuple(reversed(state.allocations))), START) is None


@pytest.mark.parametrize(
    ("journal", "message"),
    [
        pytest.param(line(9), "line 8 of the journal is missing; line 9 is there", id="a line is missing"),
        pytest.param(line(8) + line(8), "line 9 of the journal is missing", id="twice"),
        pytest.param(b"?" + line(8), "line 8 of the journal is damaged", id="damage before a line"),
        pytest.param(line(8)[:-1] + b"?" + line(9), "line 8 of the journal is damaged", id="damaged line end"),
        pytest.param(line(8) + ROOM + line(9), "line 9 of the journal is damaged", id="a hole"),
        pytest.param(ROOM + line(9)[:-1], "line 8 of the journal is damaged", id="a hole before an unfinished line"),
        pytest.param(line(8)[:20] + ROOM + line(8)[30:], "line 8 of the journal is damaged", id="a hole in line 8"),
        pytest.param(line(8) + line(9)[1:], "line 9 of the journal is damaged", id="damage in the last line"),
        pytest.param(line(8) + line(9)[:-1] + b"?", "line 9 of the journal is damaged", id="damaged end of line 9"),
        pytest.param(line(7) + line(8) + b"?\n", "line 9 of the journal is damaged", id="behind new lines"),
        pytest.param(line(6) + b"?\n" + ROOM, "line 8 of the journal is damaged", id="behind old lines"),
        pytest.param(ROOM + line(8), "line 8 of the journal is damaged", id="a hole before the first line"),
        pytest.param(b"\n\n" + ROOM, "line 8 of the journal is damaged", id="no lines"),
        pytest.param(line(8).replace(b" {", b" ["), "line 8 of the journal is damaged", id="not JSON"),
        pytest.param(line("8"), "a line of the journal lacks a field", id="no number"),
        pytest.param(line(PodDeviceEntries=[entry("uid-b")]), "d0 is held by pods uid-a and uid-b", id="two holders"),
        pytest.param(line(PodDeviceEntries=[{}]), "a line of the journal lacks a field", id="an entry of nothing"),
        pytest.param(line(PodDeviceEntries=7), "a line of the journal lacks a field", id="no entries"),
        pytest.param(line(Released=[["a"]]), "a line of the journal lacks a field", id="no key"),
        pytest.param(line(RegisteredDevices=[]), "a line of the journal lacks a field", id="no resources"),
        pytest.param(line(RegisteredDevices={GPU: [1]}), "a line of the journal lacks a field", id="no device IDs"),
    ],
)
def test_what_cannot_be_believed(journal: bytes, message: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=message):
        replayed(base(Checkpoint((held("uid-a", "d0"),))), journal)


@pytest.mark.parametrize(
    "journal",
    [
        pytest.param(b"", id="empty"),
        pytest.param(ROOM, id="room only"),
        pytest.param(line(8)[:-2], id="torn"),
        pytest.param(line(6) + line(7), id="old lines"),
        pytest.param(line(6)[9:] + line(7), id="damage before old lines"),
        pytest.param(b"?\n" + line(7), id="more damage before old lines"),
    ],
)
def test_journals_without_a_change(journal: bytes) -> None:
    before = base(Checkpoint((held("uid-a", "d0"),)))
    assert replayed(before, journal) == before


TTY = ("/dev/ttyUSB0", "c188:0")


@pytest.mark.parametrize(
    ("fields", "since", "files"),
    [
        pytest.param({"Since": [NOON], "Files": [[[*TTY]]]}, NOON, (TTY,), id="both"),
        pytest.param({}, 0, (), id="of an agent that did not keep them"),
        pytest.param({"Since": [NOON], "Later": [{}]}, NOON, (), id="beside a field of a later agent"),
        pytest.param({"Since": None, "Files": None, "Identities": 7, "Scopes": [1]}, 0, (), id="of the wrong kind"),
        pytest.param({"Since": ["x"], "Files": [[[TTY[0]]]]}, 0, (), id="a text, and no number"),
        pytest.param({"Since": [NOON, NOON], "Files": [[[*TTY]], [[*TTY]]]}, 0, (), id="too many"),
        pytest.param({"Since": {}, "Files": {}}, 0, (), id="objects"),
    ],
)
def test_an_invalid_field_of_a_line_costs_no_allocation(fields: dict[str, Any], since: int, files: Any) -> None:
    one, known = held("uid-a", "d0", since=NOON - 1, files=(("/dev/a", "c1:3"),)), {"d0": Identity(("c1:3",))}
    before = Checkpoint((one,), identities={GPU: known}, scopes={GPU: "nvml"})
    found = replayed(base(before), line(PodDeviceEntries=[entry("uid-b", {"-1": ["d1"]})], **fields))
    assert found.allocations == (one, held("uid-b", "d1", response=b"", since=since, files=files))
    is_replaced = "Scopes" in fields
    assert found.scopes == ({} if is_replaced else before.scopes)
    assert found.identities == ({} if is_replaced else before.identities)


def test_a_journal_beside_a_checkpoint_that_knows_of_none() -> None:
    """Another program wrote it, or the position in it was damaged."""
    for journal in (line(1), line(1)[1:]):
        with pytest.raises(CheckpointCorrupt, match="does not name its position"):
            replayed(Checkpoint(), journal)
    assert replayed(Checkpoint(), line(1)[:-2] + ROOM) == Checkpoint()


class TestMark:
    PLAIN = Checkpoint(registered={GPU: ("a",)})

    def test_it_is_outside_the_checksum(self) -> None:
        without, marked = json.loads(encode(self.PLAIN)), json.loads(encode(base(self.PLAIN)))
        assert decode(json.dumps(marked)).journal == START
        assert marked.pop("Journal")
        assert marked == without

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param({"Sequence": 8}, id="another line"),
            pytest.param({"Sequence": "7"}, id="no number"),
            pytest.param({"Generation": "theirs"}, id="another generation"),
            pytest.param({"Generation": None}, id="no generation"),
            pytest.param({"Generation": "\ud800"}, id="half a character"),
            pytest.param({"Checksum": None}, id="no checksum"),
        ],
    )
    def test_a_damaged_position_is_refused(self, change: dict[str, Any]) -> None:
        whole = json.loads(encode(base(self.PLAIN)))
        with pytest.raises(CheckpointCorrupt, match=r"position in the journal is damaged|at `\$\.Journal|surrogate"):
            decode(json.dumps({**whole, "Journal": {**whole["Journal"], **change}}))

    def test_a_position_of_another_checkpoint_is_refused(self) -> None:
        one, other = (json.loads(encode(Checkpoint(registered={GPU: (i,)}, journal=START))) for i in "ab")
        with pytest.raises(CheckpointCorrupt, match="position in the journal is damaged"):
            decode(json.dumps({**one, "Journal": other["Journal"]}))

    @pytest.mark.parametrize("written", ["x", 7, [], [1]])
    def test_a_value_of_another_kind_is_refused(self, written: Any) -> None:
        with pytest.raises(CheckpointCorrupt, match=r"at `\$\.Journal"):
            decode(json.dumps({**json.loads(encode(self.PLAIN)), "Journal": written}))


def test_what_is_released_twice_is_released() -> None:
    journal = line(Released=[["uid-a", "main", GPU]]) + line(9, Released=[["uid-a", "main", GPU]])
    assert replayed(Checkpoint((held("uid-a", "d0"),), journal=START), journal).allocations == ()
