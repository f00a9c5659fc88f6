"""Whatever is written is read again, a reused encoder writes the same, and any other text or JSON is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.checkpoint.format import Encoder, decode, encode
from nodedevice_agent.devicemanager.allocation.allocations import MAX_SINCE, Allocation, Checkpoint, CheckpointCorrupt

from tests.unit.node_agent.checkpoint.samples import checksum_of, entry, of

# no surrogates: nothing that comes over gRPC or from the API has them
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
IDS = st.dictionaries(st.integers(-1, 2**31), st.lists(TEXT, min_size=1, max_size=3).map(tuple), max_size=3)
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
    Checkpoint, ALLOCATIONS.map(tuple), st.dictionaries(TEXT, st.lists(TEXT).map(tuple), max_size=3), TEXT
)


@pytest.mark.kubelet("scenario 17")
@given(CHECKPOINTS)
def test_decode_reverses_encode(written: Checkpoint) -> None:
    assert decode(encode(written)) == written


@given(st.text())
def test_no_text_raises_anything_but_corrupt(text: str) -> None:
    with pytest.raises(CheckpointCorrupt):
        decode(text)


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
