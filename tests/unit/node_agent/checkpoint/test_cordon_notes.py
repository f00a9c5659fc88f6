"""Who cordoned a device and when survive beside the reasons, which an older agent reads alone; an invalid note costs no cordon."""

import json
from typing import Any

import msgspec
import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons

from tests.unit.node_agent.checkpoint.samples import GPU

NIC = "example.com/nic"
NOON = "2026-01-01T12:00:00Z"
CORDONS = Cordons("u1", {"d0": Cordon("fan", "alice", NOON), "*": Cordon()}, {"d1": Cordon("", "bob")})
FULL = Checkpoint(registered={GPU: ("d0",)}, cordons={GPU: CORDONS})


class ReasonsOnly(msgspec.Struct, frozen=True):
    """As the agents before this one read the cordons of one resource."""

    UID: str = ""
    InSpec: dict[str, str] = {}
    Remembered: dict[str, str] = {}


def test_an_older_agent_reads_every_cordon() -> None:
    written = json.loads(encode(FULL))["Cordons"][GPU]
    assert msgspec.convert(written, ReasonsOnly) == ReasonsOnly("u1", {"d0": "fan", "*": ""}, {"d1": ""})
    assert (written["By"], written["At"]) == ({"d0": "alice", "d1": "bob"}, {"d0": NOON})


@pytest.mark.parametrize(
    ("notes", "by", "at"),
    [
        pytest.param({}, "", "", id="none"),
        pytest.param({"By": None, "At": None}, "", "", id="null"),
        pytest.param({"By": ["alice"], "At": NOON}, "", "", id="of another kind"),
        pytest.param({"By": {"d0": 7}, "At": {"d0": NOON}}, "", NOON, id="a number"),
        pytest.param({"By": {"d0": "alice"}, "At": {"d0": "noon"}}, "alice", "", id="no time"),
        pytest.param({"By": {"d0": "a\n", "d9": "bob"}, "At": {"d9": NOON}}, "", "", id="of no cordon"),
    ],
)
def test_an_invalid_note_costs_no_cordon(notes: dict[str, Any], by: str, at: str) -> None:
    document = json.loads(encode(FULL))
    document["Cordons"] = {GPU: {"UID": "u1", "InSpec": {"d0": "fan"}, **notes}, NIC: 7}
    assert decode(json.dumps(document)).cordons == {GPU: Cordons("u1", {"d0": Cordon("fan", by, at)})}
