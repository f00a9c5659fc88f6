"""The checkpoint is the kubelet's format to the byte, and every damaged or invalid file is refused."""

import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_api.device_ids import shown_id

from tests.unit.node_agent.checkpoint.samples import READERS, VERSION_2, WHOLE, checksum_of, entry, of, sample


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


@READERS
@pytest.mark.parametrize("name", WHOLE)
def test_every_truncation_is_refused(name: str, read: Callable[[str], object]) -> None:
    text = sample(name)
    for length in range(len(text)):
        with pytest.raises(CheckpointCorrupt):
            read(text[:length])


@pytest.mark.parametrize("name", WHOLE)
def test_every_digit_changed_is_refused(name: str) -> None:
    text = sample(name)
    places = [place for place, character in enumerate(text) if character in string.digits]
    assert places
    for place in places:
        with pytest.raises(CheckpointCorrupt):
            decode(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])


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
        pytest.param('{"Data":{"PodDeviceEntries":null,"RegisteredDevices":null}}', "`Checksum`", id="no checksum"),
    ],
)
def test_refuses_invalid_files(text: str, message: str) -> None:
    with pytest.raises(CheckpointCorrupt) as refused:
        decode(text)
    assert message in str(refused.value)
    assert len(str(refused.value)) <= 512


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param([entry(PodUID=7)], "", id="uid is a number"),
        pytest.param([entry(ContainerName=None)], "", id="no container"),
        pytest.param([entry(ids={"x": ["d0"]})], "", id="NUMA node is a word"),
        pytest.param([entry(ids={" 1": ["d0"]})], "", id="NUMA node with a space"),
        pytest.param([entry(ids={"0": [7]})], "", id="device ID is a number"),
        pytest.param([entry(ids={"0": "d0"})], "", id="IDs are one text"),
        pytest.param([entry(ids=["d0", 7])], "", id="version 1, device ID is a number"),
        pytest.param([entry(AllocResp="***")], "", id="answer is not base64"),
        pytest.param([entry(AllocResp=7)], "", id="answer is a number"),
        pytest.param([entry(PodUID=["x" * 100_000])], "", id="a huge value of the wrong kind"),
        pytest.param([entry(), entry(ids={"0": ["d1"]})], "two entries for one resource", id="one container twice"),
    ],
)
def test_refuses_a_broken_entry_even_where_the_checksum_is_right(entries: list[Any], message: str) -> None:
    with pytest.raises(CheckpointCorrupt) as refused:
        decode(of({"PodDeviceEntries": entries, "RegisteredDevices": None}))
    assert message in str(refused.value)
    assert len(str(refused.value)) <= 512


@READERS
def test_refuses_a_device_of_two_pods(read: Callable[[str], object]) -> None:
    held = (Allocation(uid, "c", "r/r", {0: ("a",)}, b"") for uid in "pq")
    with pytest.raises(CheckpointCorrupt, match="a is held by pods p and q"):
        read(encode(Checkpoint(tuple(held))))


def test_takes_a_device_of_two_containers_of_one_pod() -> None:
    data = {"PodDeviceEntries": [entry(ContainerName="init"), entry()], "RegisteredDevices": {}}
    assert [a.container for a in decode(of(data)).allocations] == ["init", "main"]


@pytest.mark.parametrize("kind", [float, str, lambda value: [value]], ids=["a float", "a text", "a list"])
def test_refuses_a_checksum_of_another_kind(kind: Any) -> None:
    data = {"PodDeviceEntries": [entry()], "RegisteredDevices": {}}
    assert decode(of(data)).allocations
    with pytest.raises(CheckpointCorrupt, match=r"Expected `int`.* at `\$\.Checksum`"):
        decode(json.dumps({"Data": data, "Checksum": kind(checksum_of(data))}))


def test_escapes_as_gos_encoder_does() -> None:
    ids = tuple(map(shown_id, ("<&>", "\u2028\u2029", '"\\', "☃")))
    written = encode(Checkpoint(registered={"example.com/é": ids}))
    assert r'"example.com/é":["\u003c\u0026\u003e","\u2028\u2029","\"\\","☃"]' in written
    assert decode(written).registered == {"example.com/é": ids}


def test_sorts_numa_nodes_as_text_in_the_file_and_as_numbers_in_the_checksum() -> None:
    written = encode(Checkpoint((Allocation("u", "c", "r/r", {-1: ("a",), 0: ("b",), 2: ("c",), 10: ("d",)}, b""),)))
    assert '"DeviceIDs":{"-1":["a"],"0":["b"],"10":["d"],"2":["c"]}' in written
    assert list(decode(written).allocations[0].ids_by_numa) == [-1, 0, 2, 10]


def test_an_answer_that_must_be_asked_again_stays_so() -> None:
    written = encode(Checkpoint((Allocation("u", "c", "r/r", {0: ("a",)}, None),)))
    assert '"AllocResp":null' in written
    assert decode(written).allocations[0].response is None
