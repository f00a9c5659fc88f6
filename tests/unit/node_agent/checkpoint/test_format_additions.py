"""What the agent keeps beside the kubelet's fields: outside the checksum, and never a reason to refuse a file."""

import json
from typing import Any

import pytest
from msgspec import structs
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.records.allocations import MAX_SINCE, Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, PluginSocket

from tests.unit.node_agent.checkpoint.samples import GPU, sample

GOOD = {"ResourceName": GPU, "Endpoint": "gpu.sock"}
PLAIN = Checkpoint(registered={GPU: ("a",)})
SOCKETS = (PluginSocket(GPU, "gpu.sock"), PluginSocket("example.com/nic", ".kept-nic.sock"))


@pytest.mark.parametrize(("name", "more"), [("BootID", {"boot_id": "boot-1"}), ("Endpoints", {"sockets": SOCKETS})])
def test_what_survives_and_is_outside_the_checksum(name: str, more: dict[str, Any]) -> None:
    written = structs.replace(PLAIN, **more)
    whole = json.loads(encode(written))
    assert decode(json.dumps(whole)) == written
    assert whole.pop(name)
    assert whole == json.loads(encode(PLAIN))


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
def test_invalid_sockets_are_ignored(written: Any, read: int) -> None:
    document = {**json.loads(encode(PLAIN)), "Endpoints": written}
    assert decode(json.dumps(document)).sockets == (PluginSocket(GPU, "gpu.sock"),) * read


NOON = 1_767_614_400


def held(field: str, *values: Any) -> Checkpoint:
    """An allocation with each of these values of the field."""
    return Checkpoint(
        tuple(Allocation(f"uid-{n}", "main", GPU, {0: (f"d{n}",)}, b"", **{field: v}) for n, v in enumerate(values))
    )


@pytest.mark.parametrize(
    ("name", "field", "values", "none"),
    [
        *(("Since", "since", v, 0) for v in ((NOON,), (NOON, NOON + 7), (0, NOON), (NOON, 0), (1, MAX_SINCE))),
        *(("Deliveries", "delivery", v, "") for v in (("nri", "nri"), ("kubelet", "nri"), ("", "none"))),
    ],
)
def test_what_is_known_of_entries_survives(name: str, field: str, values: tuple[Any, ...], none: Any) -> None:
    whole = json.loads(encode(held(field, *values)))
    assert [getattr(a, field) for a in decode(json.dumps(whole)).allocations] == [*values]
    assert whole.pop(name) == [*values]
    assert json.dumps(whole) == json.dumps(json.loads(encode(held(field, *[none] * len(values)))))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(None, [0, 0], id="null"),
        pytest.param("2026", [0, 0], id="a text"),
        pytest.param({"0": NOON}, [0, 0], id="an object"),
        pytest.param(NOON, [0, 0], id="a number"),
        pytest.param([], [0, 0], id="none"),
        pytest.param([NOON], [0, 0], id="too few: whose it is, is not known"),
        pytest.param([NOON, NOON, NOON], [0, 0], id="too many"),
        pytest.param(["2026", NOON], [0, NOON], id="what is wrong takes nothing along"),
        pytest.param([True, NOON], [0, NOON], id="true"),
        pytest.param([1.5, NOON], [0, NOON], id="a fraction"),
        pytest.param([None, [NOON]], [0, 0], id="null and a list"),
        pytest.param([-1, NOON], [0, NOON], id="before 1970"),
        pytest.param([MAX_SINCE + 1, MAX_SINCE], [0, MAX_SINCE], id="after the year 9999"),
        pytest.param([2**80, NOON], [0, NOON], id="a number without end"),
        pytest.param(["nri"], ["", ""], id="too few deliveries"),
        pytest.param(["nri", 7], ["nri", ""], id="a number for a delivery"),
        pytest.param(["docker", "kubelet"], ["", "kubelet"], id="a word that is none"),
        pytest.param([["nri"], {}], ["", ""], id="a list and an object for a delivery"),
    ],
)
def test_what_is_invalid_of_an_entry_costs_no_allocation(written: Any, read: list[Any]) -> None:
    name, field = ("Since", "since") if isinstance(read[0], int) else ("Deliveries", "delivery")
    document = {**json.loads(encode(held("since", NOON, NOON))), name: written}
    found = decode(json.dumps(document)).allocations
    assert [getattr(a, field) for a in found] == read
    assert [a.device_ids for a in found] == [("d0",), ("d1",)]


def test_a_file_with_deliveries_is_one_without_them_for_the_release_before() -> None:
    text = sample("agent-with-deliveries")
    found = decode(text)
    assert [(a.pod_uid, a.delivery) for a in found.allocations] == [("uid-a", "kubelet"), ("uid-b", "nri")]
    assert encode(found) == text
    assert text.replace(',"Deliveries":["kubelet","nri"]', "") == sample("agent-without-since")


def test_entries_of_a_kubelets_checkpoint_are_delivered_by_the_kubelet() -> None:
    assert {a.delivery for a in decode(sample("v2-two-gpus-numa1"), "kubelet").allocations} == {"kubelet"}


def test_a_field_of_a_later_agent_is_ignored() -> None:
    text = encode(held("since", NOON))
    assert decode(f'{text[:-1]},"Later":[{{"a":1}}]}}') == decode(text) == held("since", NOON)


def test_a_file_of_an_agent_that_did_not_keep_it() -> None:
    found = decode(sample("agent-without-since"))
    shown = [(a.pod_uid, a.device_ids, a.since) for a in found.allocations]
    assert shown == [("uid-a", ("d0",), 0), ("uid-b", ("d1", "d2"), 0)]
    assert (found.boot_id, found.sockets) == ("boot-1", (PluginSocket(GPU, "gpu.sock"),))
    assert encode(found) == sample("agent-without-since")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param('["example.com/gpu","no name",3,null]', ("example.com/gpu",), id="names and others"),
        pytest.param('{"example.com/gpu":1}', (), id="an object"),
        pytest.param("3", (), id="a number"),
    ],
)
def test_of_gone_resources_only_names_are_read(written: str, read: tuple[str, ...]) -> None:
    assert decode(f'{encode(Checkpoint())[:-1]},"Gone":{written}}}').gone == read
