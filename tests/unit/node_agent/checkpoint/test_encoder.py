"""What is written again and again is written as if for the first time, whatever came, changed and went in between."""

import json

from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.checkpoint.checksum import checksum
from nodedevice_agent.checkpoint.format import Encoder, decode, encode
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.state import Checkpoint

POOL = [Allocation(f"uid-{n}", "main", "r/r", {0: (f"d{n}",)}, bytes([n]) * n) for n in range(6)]
ORDERS = st.lists(st.sampled_from(POOL), unique_by=lambda a: a.pod_uid).map(tuple)
REGISTERED = st.dictionaries(st.sampled_from(["r/r", "r/é", "r/<s>"]), st.lists(st.text("ab", max_size=2)).map(tuple))
CHECKPOINTS = st.builds(Checkpoint, ORDERS, REGISTERED, st.sampled_from(["", "boot-1"]))


@given(st.lists(CHECKPOINTS, max_size=8))
def test_an_encoder_that_is_used_again_writes_what_a_new_one_writes(checkpoints: list[Checkpoint]) -> None:
    encoder = Encoder()
    for checkpoint in checkpoints:
        written = encoder.encode(checkpoint)
        assert written == encode(checkpoint)
        whole = json.loads(written)
        assert whole["Checksum"] == checksum(whole["Data"])


def test_pods_that_come_and_go_with_the_same_devices_listed() -> None:
    """Every low byte of the hash before the list of devices, many of them twice."""
    encoder = Encoder()
    registered = {"r/r": ("d0", "d1", "d2")}
    for number in range(600):
        allocation = Allocation(f"uid-{number % 300}", "main", "r/r", {0: ("d0",)}, b"answer")
        checkpoint = Checkpoint((allocation,), registered)
        assert decode(encoder.encode(checkpoint)) == checkpoint
