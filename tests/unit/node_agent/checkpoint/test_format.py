"""The checkpoint is the kubelet's format to the byte, and every damaged or invalid file is refused.

checkpoints/ has files that kubelets wrote: version 1 and 2, and one whose content was changed after its checksum; and one that an
agent wrote before it kept since when containers have their devices.
"""

import json
import string
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.checkpoint.format import Data, Encoder, check_possible, checksum, decode, encode
from nodedevice_agent.devicemanager.allocation.allocations import (
    MAX_SINCE,
    Allocation,
    Checkpoint,
    CheckpointCorrupt,
    PluginSocket,
)
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_registration
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept

SAMPLES = Path(__file__).parent / "checkpoints"
VERSION_2 = ["v2-no-pods", "v2-one-pod-no-numa", "v2-two-gpus-numa1"]
WHOLE = [*VERSION_2, "v1-two-pods"]


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.json").read_text(encoding="utf-8").rstrip("\n")


def checksum_of(data: dict[str, Any]) -> int:
    """Raises for what has none."""
    return checksum(msgspec.json.decode(json.dumps(data), type=Data))


def of(data: dict[str, Any], **more: Any) -> str:
    """A file with the right checksum, whatever is in it; for what is so broken that it has none, with a wrong one."""
    try:
        summed = checksum_of(data)
    except Exception:  # whatever goes wrong, the file is to be refused
        summed = 1
    return json.dumps({"Data": data, "Checksum": summed, **more})


def entry(uid: str = "uid-a", ids: Any = None, **more: Any) -> dict[str, Any]:
    ids = {"0": ["d0"]} if ids is None else ids
    return {
        "PodUID": uid,
        "ContainerName": "main",
        "ResourceName": "example.com/gpu",
        "DeviceIDs": ids,
        "AllocResp": "",
    } | more


@pytest.mark.parametrize("name", WHOLE)
def test_the_checksum_is_the_kubelets(name: str) -> None:
    whole = json.loads(sample(name))
    assert checksum_of(whole["Data"]) == whole["Checksum"]


@pytest.mark.kubelet("scenario 17")
@pytest.mark.parametrize("name", VERSION_2)
def test_a_kubelets_file_is_written_again_byte_for_byte(name: str) -> None:
    assert encode(decode(sample(name))) == sample(name)


def test_version_1_reads_as_numa_node_0() -> None:
    first, second = decode(sample("v1-two-pods")).allocations
    assert (first.pod_uid, first.container) == ("13ac2284-0d19-44b7-b94f-055b032dba9b", "centos")
    assert (first.ids_by_numa, second.ids_by_numa) == ({0: ("DevA3",)}, {0: ("DevA4",)})
    assert first.response is not None
    assert b"EXAMPLECOMDEVICEA_DEVA3_TTY10" in first.response


@pytest.mark.kubelet("scenario 104")
def test_no_numa_node_reads_as_minus_1() -> None:
    (only,) = decode(sample("v2-one-pod-no-numa")).allocations
    assert only.ids_by_numa == {-1: ("tegra",)}


def test_a_file_that_was_changed_by_hand_is_refused() -> None:
    with pytest.raises(CheckpointCorrupt, match="checksum is 216033768"):
        decode(sample("corrupt-checksum"))


@pytest.mark.parametrize("name", WHOLE)
def test_every_truncation_is_refused(name: str) -> None:
    text = sample(name)
    for length in range(len(text)):
        with pytest.raises(CheckpointCorrupt):
            decode(text[:length])


@pytest.mark.parametrize("name", WHOLE)
def test_every_digit_changed_is_refused(name: str) -> None:
    text = sample(name)
    places = [place for place, character in enumerate(text) if character in string.digits]
    assert places
    for place in places:
        other = str((int(text[place]) + 1) % 10)
        with pytest.raises(CheckpointCorrupt):
            decode(text[:place] + other + text[place + 1 :])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "not JSON", id="empty"),
        pytest.param("\x00" * 512, "not JSON", id="zeros, as after a power cut"),
        pytest.param("[" * 100_000, "Expected `object`", id="nested without end"),
        pytest.param('{"x":' + "[" * 100_000, "not JSON", id="an unknown field, nested without end"),
        pytest.param("9" * 10_000, "out of range", id="a number without end"),
        pytest.param("null", "Expected `object`", id="null"),
        pytest.param("[]", "Expected `object`", id="a list"),
        pytest.param('{"Data":[],"Checksum":1}', "at `$.Data`", id="data of the wrong kind"),
        pytest.param('{"Data":{},"Checksum":1}', "PodDeviceEntries", id="no entries"),
        pytest.param('{"Data":{"PodDeviceEntries":{"a":1},"RegisteredDevices":null}}', "field", id="entries as a map"),
        pytest.param('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":[1]}}', "field", id="names as a list"),
        pytest.param('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"a":null}}}', "field", id="no IDs"),
        pytest.param('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"\\ud800":[]}}}', "", id="half a letter"),
        pytest.param(
            '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null}}',
            "missing required field `Checksum`",
            id="no checksum",
        ),
        pytest.param(
            of({"PodDeviceEntries": None, "RegisteredDevices": None})[:-1] + ',"Checksum":"x"}',
            "at `$.Checksum`",
            id="word",
        ),
    ],
)
def test_refuses_invalid_files(text: str, message: str) -> None:
    with pytest.raises(CheckpointCorrupt) as refused:
        decode(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) <= 512


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(entry(PodUID=7), id="uid is a number"),
        pytest.param(entry(ContainerName=None), id="no container"),
        pytest.param(entry(ids={"x": ["d0"]}), id="NUMA node is a word"),
        pytest.param(entry(ids={" 1": ["d0"]}), id="NUMA node with a space"),
        pytest.param(entry(ids={"0": [7]}), id="device ID is a number"),
        pytest.param(entry(ids={"0": "d0"}), id="IDs are one text"),
        pytest.param(entry(ids=["d0", 7]), id="version 1, device ID is a number"),
        pytest.param(entry(AllocResp="***"), id="answer is not base64"),
        pytest.param(entry(AllocResp=7), id="answer is a number"),
        pytest.param(entry(PodUID=["x" * 100_000]), id="a huge value of the wrong kind"),
    ],
)
def test_refuses_a_broken_entry_even_where_the_checksum_is_right(broken: dict[str, Any]) -> None:
    with pytest.raises(CheckpointCorrupt) as refused:
        decode(of({"PodDeviceEntries": [broken], "RegisteredDevices": None}))
    assert len(str(refused.value)) <= 512


def test_refuses_a_device_of_two_pods() -> None:
    data = {"PodDeviceEntries": [entry("uid-a"), entry("uid-b")], "RegisteredDevices": {}}
    with pytest.raises(CheckpointCorrupt, match="d0 is held by pods uid-a and uid-b"):
        decode(of(data))


def test_takes_a_device_of_two_containers_of_one_pod() -> None:
    data = {"PodDeviceEntries": [entry(ContainerName="init"), entry()], "RegisteredDevices": {}}
    assert [a.container for a in decode(of(data)).allocations] == ["init", "main"]


def test_refuses_two_entries_of_one_container() -> None:
    data = {"PodDeviceEntries": [entry(), entry(ids={"0": ["d1"]})], "RegisteredDevices": {}}
    with pytest.raises(CheckpointCorrupt, match="two entries for one resource"):
        decode(of(data))


@pytest.mark.parametrize("kind", [float, str, lambda value: [value]], ids=["a float", "a text", "a list"])
def test_refuses_a_checksum_of_another_kind(kind: Any) -> None:
    data = {"PodDeviceEntries": [entry()], "RegisteredDevices": {}}
    assert decode(of(data)).allocations
    with pytest.raises(CheckpointCorrupt, match=r"Expected `int`.* at `\$\.Checksum`"):
        decode(json.dumps({"Data": data, "Checksum": kind(checksum_of(data))}))


def test_escapes_as_gos_encoder_does() -> None:
    written = encode(Checkpoint(registered={"example.com/é": ("<&>", "\u2028\u2029", '"\\', "☃")}))
    assert r'"example.com/é":["\u003c\u0026\u003e","\u2028\u2029","\"\\","☃"]' in written
    assert decode(written).registered == {"example.com/é": ("<&>", "\u2028\u2029", '"\\', "☃")}


def test_sorts_numa_nodes_as_text_in_the_file_and_as_numbers_in_the_checksum() -> None:
    ids = {-1: ("a",), 0: ("b",), 2: ("c",), 10: ("d",)}
    written = encode(Checkpoint((Allocation("u", "c", "r/r", ids, b""),)))
    assert '"DeviceIDs":{"-1":["a"],"0":["b"],"10":["d"],"2":["c"]}' in written
    assert list(decode(written).allocations[0].ids_by_numa) == [-1, 0, 2, 10]


def test_the_boot_id_is_outside_the_checksum() -> None:
    plain, booted = Checkpoint(registered={"r/r": ()}), Checkpoint(registered={"r/r": ()}, boot_id="boot-1")
    assert json.loads(encode(plain))["Checksum"] == json.loads(encode(booted))["Checksum"]
    assert decode(encode(booted)).boot_id == "boot-1"
    assert "BootID" not in encode(plain)


def test_an_answer_that_must_be_asked_again_stays_so() -> None:
    written = encode(Checkpoint((Allocation("u", "c", "r/r", {0: ("a",)}, None),)))
    assert '"AllocResp":null' in written
    assert decode(written).allocations[0].response is None


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


# -- an encoder that is used again

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


# -- sockets of connected plugins: never a reason to refuse a file

GPU = "example.com/gpu"
GOOD = {"ResourceName": GPU, "Endpoint": "gpu.sock"}


def test_sockets_survive_and_are_outside_the_checksum() -> None:
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
def test_invalid_sockets_are_ignored(written: Any, read: int) -> None:
    document = {**json.loads(encode(Checkpoint(registered={GPU: ("a",)}))), "Endpoints": written}
    assert decode(json.dumps(document)).sockets == (PluginSocket(GPU, "gpu.sock"),) * read


# -- since when containers have their devices: never a reason to refuse a file

NOON = 1_767_614_400


def held_since(*since: int) -> Checkpoint:
    return Checkpoint(
        tuple(Allocation(f"uid-{n}", "main", GPU, {0: (f"d{n}",)}, b"", since=at) for n, at in enumerate(since))
    )


@pytest.mark.parametrize("since", [(NOON,), (NOON, NOON + 7), (0, NOON), (NOON, 0), (1, MAX_SINCE)])
def test_since_survives_and_is_outside_the_checksum(since: tuple[int, ...]) -> None:
    whole = json.loads(encode(held_since(*since)))
    assert [a.since for a in decode(json.dumps(whole)).allocations] == [*since]
    assert whole.pop("Since") == [*since]
    assert json.dumps(whole) == json.dumps(json.loads(encode(held_since(*[0] * len(since)))))


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
    ],
)
def test_an_invalid_since_costs_no_allocation(written: Any, read: list[int]) -> None:
    document = {**json.loads(encode(held_since(NOON, NOON))), "Since": written}
    found = decode(json.dumps(document)).allocations
    assert [a.since for a in found] == read
    assert [a.device_ids for a in found] == [("d0",), ("d1",)]


def test_a_field_of_a_later_agent_is_ignored() -> None:
    text = encode(held_since(NOON))
    assert decode(f'{text[:-1]},"Later":[{{"a":1}}]}}') == decode(text) == held_since(NOON)


def test_a_file_of_an_agent_that_did_not_keep_it() -> None:
    found = decode(sample("agent-without-since"))
    assert [(a.pod_uid, a.device_ids, a.since) for a in found.allocations] == [
        ("uid-a", ("d0",), 0),
        ("uid-b", ("d1", "d2"), 0),
    ]
    assert (found.boot_id, found.sockets) == ("boot-1", (PluginSocket(GPU, "gpu.sock"),))
    assert encode(found) == sample("agent-without-since")


# -- validation


def holding(**change: Any) -> Checkpoint:
    plain = {"pod_uid": "u", "container": "c", "resource_name": "a.b/c", "ids_by_numa": {-1: ("x",)}, "response": None}
    return Checkpoint((Allocation(**{**plain, **change}),))


@pytest.mark.parametrize(
    "possible",
    [
        pytest.param(Checkpoint(), id="nothing"),
        pytest.param(holding(), id="one device"),
        pytest.param(holding(ids_by_numa={-1: ("x" * 128,), 2**31 - 1: ("GPU ☃/0:1",)}), id="extremes"),
        pytest.param(holding(ids_by_numa={}), id="no device"),
        pytest.param(Checkpoint(registered={"example.com/GPU_1.a": ("x",)}), id="a name alone"),
    ],
)
def test_accepts_possible_content(possible: Checkpoint) -> None:
    check_possible(possible)


@pytest.mark.parametrize(
    ("impossible", "message"),
    [
        pytest.param(holding(resource_name=""), "resource name ''", id="no resource name"),
        pytest.param(holding(resource_name="no such\nname"), r"'no such\\nname'", id="a name with a line break"),
        pytest.param(Checkpoint(registered={"kubernetes.io/x": ()}), "reserved", id="a reserved name"),
        pytest.param(Checkpoint(registered={"x" * 9999: ()}), "domain/name", id="an endless name"),
        pytest.param(holding(ids_by_numa={-1: ("a\nb",)}), r"invalid device ID 'a\\nb'", id="an ID with a line break"),
        pytest.param(holding(ids_by_numa={-1: ("y" * 9999,)}), "invalid device ID", id="an endless ID"),
        pytest.param(holding(ids_by_numa={-1: ("",)}), "invalid device ID ''", id="an empty ID"),
        pytest.param(holding(ids_by_numa={2**70: ("x",)}), "invalid NUMA node 1180", id="a huge NUMA node"),
        pytest.param(holding(ids_by_numa={-7: ("x",)}), "invalid NUMA node -7", id="a NUMA node below none"),
    ],
)
def test_refuses_impossible_content(impossible: Checkpoint, message: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=message) as refused:
        check_possible(impossible)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@given(
    st.text(max_size=20) | st.sampled_from(["a.b/c", "example.com/gpu"]), st.lists(st.text(max_size=140), max_size=5)
)
def test_accepts_whatever_a_plugin_can_register(resource_name: str, device_ids: list[str]) -> None:
    """Whatever a plugin registers and lists, and a pod gets of it, is accepted at the next start."""
    try:
        check_registration("v1beta1", resource_name, "a.sock")
    except RegistrationRejected:
        return
    manager = DeviceManager(0.0)
    manager.connected(resource_name, 1, PluginOptions(), 0.0)
    listed = accept(Device(device_id, numa_nodes=(0, 2**31 - 1)) for device_id in device_ids)
    manager.listed(resource_name, 1, listed, 0.0)
    if not listed.devices:
        return
    pod = Pod("uid", "default", "one", (Container("main", limits={resource_name: len(listed.devices)}),))
    for effect in manager.pods_synced([pod], 0.0):
        if isinstance(effect, CallAllocate):
            manager.allocated(effect.ticket, AllocateResponse(b"", ContainerEdits()), 0.0)
    check_possible(manager.checkpoint())
    assert len(manager.checkpoint().allocations) == 1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param('["example.com/gpu","no name",3,null]', ("example.com/gpu",), id="names and others"),
        pytest.param('{"example.com/gpu":1}', (), id="an object"),
        pytest.param("3", (), id="a number"),
    ],
)
def test_of_gone_resources_only_names_are_read(written: str, read: tuple[str, ...]) -> None:
    text = encode(Checkpoint())
    assert decode(f'{text[:-1]},"Gone":{written}}}').gone == read
