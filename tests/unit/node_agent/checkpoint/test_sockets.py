"""Where connected plugins are found again: beside the checkpoint's checksummed part, and never a reason to refuse a file."""

import json
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.state import Checkpoint, PluginSocket

GPU = "example.com/gpu"
GOOD = {"ResourceName": GPU, "Endpoint": "gpu.sock"}


def test_they_survive_and_stand_outside_the_checksum() -> None:
    sockets = (PluginSocket(GPU, "gpu.sock"), PluginSocket("example.com/nic", ".kept-nic.sock"))
    text = encode(Checkpoint(registered={GPU: ("a",)}, sockets=sockets))
    assert decode(text).sockets == sockets
    without = json.loads(encode(Checkpoint(registered={GPU: ("a",)})))
    assert "Endpoints" not in without
    assert json.loads(text)["Checksum"] == without["Checksum"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, 0, id="null"),
        pytest.param("gpu.sock", 0, id="not a list"),
        pytest.param([1, None, [], "x", {}], 0, id="not objects"),
        pytest.param([{"ResourceName": GPU}], 0, id="a field is missing"),
        pytest.param([{**GOOD, "Endpoint": 7}], 0, id="not a string"),
        pytest.param([{**GOOD, "Endpoint": "../gpu.sock"}], 0, id="leads out of the directory"),
        pytest.param([{**GOOD, "Endpoint": "a\0b"}], 0, id="not a file name"),
        pytest.param([{**GOOD, "ResourceName": "gpu"}], 0, id="not a resource name"),
        pytest.param([{"ResourceName": "gpu"}, GOOD], 1, id="what is wrong takes nothing along"),
        pytest.param([GOOD] * 1000, 256, id="a bound"),
    ],
)
def test_what_is_wrong_with_them_is_passed_over(written: Any, read: int) -> None:
    document = {**json.loads(encode(Checkpoint(registered={GPU: ("a",)}))), "Endpoints": written}
    assert decode(json.dumps(document)).sockets == (PluginSocket(GPU, "gpu.sock"),) * read
