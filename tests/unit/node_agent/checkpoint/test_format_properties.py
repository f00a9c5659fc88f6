"""Whatever is written is read again, a reused encoder writes the same, and any other text or JSON is refused."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.checkpoint.format import Encoder, decode, encode
from nodedevice_agent.devicemanager.records.allocations import MAX_SINCE, Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_api.device_ids import original_id, shown_id

from tests.unit.node_agent.checkpoint.samples import READERS, checksum_of, entry, of

# no surrogates: nothing that comes over gRPC or from the API has them
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# A plugin may list any text, and the API has shown forms of which the original is lost.
ORIGINALS = st.lists(TEXT | st.integers(129, 300).map("é".__mul__), min_size=1, max_size=3)
FROM_API = st.integers(129, 300).map(lambda length: [str(shown_id("y" * length))])
SHOWN = (ORIGINALS | FROM_API).map(lambda ids: tuple(i if i[:9] == "escaped:y" else shown_id(i) for i in ids))
IDS = st.dictionaries(st.integers(-1, 2**31), SHOWN, max_size=3)
ALLOCATIONS = st.lists(
    st.builds(
        Allocation,
        st.just("uid-a"),
        TEXT,
        TEXT,
        IDS,
        st.none() | st.binary(max_size=20),
        since=st.just(0) | st.integers(1, MAX_SINCE),
    ),
    max_size=3,
    unique_by=lambda allocation: (allocation.container, allocation.resource_name),
)
CHECKPOINTS = st.builds(
    Checkpoint,
    ALLOCATIONS.map(tuple),
    st.dictionaries(TEXT, ORIGINALS.map(lambda ids: tuple(map(shown_id, ids))), max_size=3),
    TEXT,
)


@pytest.mark.kubelet("scenario 17")
@given(CHECKPOINTS)
def test_decode_reverses_encode(written: Checkpoint) -> None:
    read = decode(encode(written))
    assert read == written
    assert [*map(_originals, read.allocations)] == [*map(_originals, written.allocations)]


def _originals(allocation: Allocation) -> list[str]:
    return [*map(original_id, allocation.device_ids)]


@READERS
@given(st.text())
def test_no_text_raises_anything_but_corrupt(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        read(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(JSON, JSON, JSON, JSON)
def test_json_raises_nothing_but_corrupt(ids: object, response: object, registered: object, boot_id: object) -> None:
    data = {"PodDeviceEntries": [entry(ids=ids, AllocResp=response)], "RegisteredDevices": registered}
    message = ""
    allocations: tuple[Allocation, ...] = ()
    try:
        allocations = decode(of(data, BootID=boot_id)).allocations
    except CheckpointCorrupt as exc:
        message = str(exc)
    assert len(message) <= 512
    assert all(isinstance(i, str) for allocation in allocations for i in allocation.device_ids)


POOL = [Allocation(f"uid-{n}", "main", "r/r", {0: (f"d{n}",)}, bytes([n]) * n, since=n % 3) for n in range(6)]
ORDERS = st.lists(st.sampled_from(POOL), unique_by=lambda a: a.pod_uid).map(tuple)
REGISTERED = st.dictionaries(st.sampled_from(["r/r", "r/é", "r/<s>"]), st.lists(st.text("ab", max_size=2)).map(tuple))
REPEATED = st.builds(Checkpoint, ORDERS, REGISTERED, st.sampled_from(["", "boot-1"]))


@given(st.lists(REPEATED, max_size=8))
def test_a_reused_encoder_writes_the_same_as_a_new_one(checkpoints: list[Checkpoint]) -> None:
    encoder = Encoder()
    for checkpoint in checkpoints:
        written = encoder.encode(checkpoint)
        assert written == encode(checkpoint)
        whole = json.loads(written)
        assert whole["Checksum"] == checksum_of(whole["Data"])


def test_pods_that_come_and_go_with_the_same_devices_listed() -> None:
    """Every low byte of the hash before the list of devices, many of them twice."""
    encoder = Encoder()
    registered = {"r/r": ("d0", "d1", "d2")}
    for number in range(600):
        allocation = Allocation(f"uid-{number % 300}", "main", "r/r", {0: ("d0",)}, b"answer")
        checkpoint = Checkpoint((allocation,), registered)
        assert decode(encoder.encode(checkpoint)) == checkpoint
