"""A kubelet's checkpoint that is decoded in pieces is as if it were decoded whole, but for the longest responses."""

import base64
import json
import string
from contextlib import suppress
from itertools import chain

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from nodedevice_agent.checkpoint import long_files
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.checkpoint.long_files import MAX_RESPONSE_BYTES, MAX_RESPONSES_BYTES, decode_long
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_api.device_ids import has_original, shown_id
from nodedevice_api.names import DELIVERY_KUBELET

from tests.unit.node_agent.checkpoint.samples import GPU, WHOLE, entry, reads, sample
from tests.unit.node_agent.checkpoint.test_format_properties import ALLOCATIONS, TEXT

CHECKPOINTS = st.builds(
    Checkpoint,
    ALLOCATIONS.map(lambda found: tuple(replace(a, since=0) for a in found)),
    st.dictionaries(TEXT, st.lists(TEXT).map(tuple), max_size=3),
)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", WHOLE)
def test_a_kubelets_file(name: str, size: int) -> None:
    found = decode_long(reads(sample(name), size))
    assert (found.checkpoint, found.unread) == (decode(sample(name), DELIVERY_KUBELET), {})


@pytest.mark.parametrize("name", WHOLE)
def test_no_change_of_punctuation_raises_anything_but_corrupt(name: str) -> None:
    text = sample(name)
    for place, character in enumerate(text):
        if character in string.punctuation:
            for other in '\\"[]{}:,0':
                with suppress(CheckpointCorrupt):
                    decode_long(reads(text[:place] + other + text[place + 1 :], 64))


@given(CHECKPOINTS, st.integers(1, 50))
def test_any_checkpoint_at_any_size_of_the_pieces(written: Checkpoint, size: int) -> None:
    # a kubelet's file has the original of each ID
    ids = [i for a in written.allocations for i in a.device_ids]
    assume(all(map(has_original, [*ids, *chain.from_iterable(written.registered.values())])))
    text = encode(written)
    found = decode_long(reads(text, size))
    assert (found.checkpoint, found.unread) == (decode(text, DELIVERY_KUBELET), {})


def test_the_longest_responses_are_left_out_each_and_in_sum() -> None:
    fits = MAX_RESPONSES_BYTES // MAX_RESPONSE_BYTES
    sizes = [MAX_RESPONSE_BYTES + 3, 4_194_303, *[MAX_RESPONSE_BYTES] * (fits + 2), 9]
    responses = [base64.b64encode(b"x" * size).decode() for size in sizes]
    held = [entry(f"p{n}", {"0": [f"d{n}"]}, AllocResp=response) for n, response in enumerate(responses)]
    # a right checksum takes a second for each 5 MiB
    document = {"Data": {"PodDeviceEntries": held, "RegisteredDevices": {}}, "Checksum": 1}
    found = decode_long(reads(json.dumps(document, separators=(",", ":")), 1 << 30))
    kept = [len(a.response or b"") for a in found.checkpoint.allocations]
    assert kept[:2] == [0, 0]
    assert sum(kept) <= MAX_RESPONSES_BYTES
    assert kept.count(MAX_RESPONSE_BYTES) >= fits - 1
    assert {uid for uid, _, _ in found.unread} == {f"p{n}" for n, size in enumerate(kept) if not size}
    assert found.unread["p1", "main", GPU] == 4_194_303


def test_beyond_the_devices_of_a_node_names_are_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_files, "MAX_DEVICES_OF_KUBELET", 5)
    lists = {"r/a": ("1", "2", "3"), "r/b": ("1", "2", "3"), "r/c": ("1", "2"), "r/d": ("1",), "r/e": ()}
    found = decode_long(reads(encode(Checkpoint(registered=lists)), 16))
    assert found.checkpoint.registered == {**lists, "r/b": (), "r/d": ()}
    assert found.omitted == {"r/b": 3, "r/d": 1}


def test_of_a_list_that_is_too_long_the_devices_of_pods_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of them would be shown as lost."""
    monkeypatch.setattr(long_files, "MAX_DEVICES_OF_KUBELET", 5)
    lists = {"r/a": ("1", "2", "3"), "r/b": ("1", "2", "3", "4"), "r/c": ("1", "2")}
    held = Allocation("uid", "c", "r/b", {-1: ("2", "4", "gone")}, b"")
    found = decode_long(reads(encode(Checkpoint((held,), registered=lists)), 16))
    assert found.checkpoint.registered == {"r/a": lists["r/a"], "r/b": ("2", "4"), "r/c": ()}
    assert found.omitted == {"r/b": 2, "r/c": 2}


def test_an_id_that_is_longer_than_a_piece() -> None:
    lists = {"r/a": ("1", "x" * (1 << 20), "]", '",', "2")}
    found = decode_long(reads(encode(Checkpoint(registered=lists)), 1 << 20)).checkpoint.registered
    assert found == {"r/a": tuple(map(shown_id, lists["r/a"]))}
