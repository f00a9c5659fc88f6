"""`nodedevice-agent checkpoint`: its output for people and programs, and the one line about an invalid file."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.checkpoint.writer import CheckpointStore
from nodedevice_agent.cli.run import main
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, PluginSocket
from nodedevice_agent.devicemanager.records.cordons import Cordon, Cordons
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.unit.node_agent.deviceplugin.test_codec import EVERYTHING

SAMPLES = Path(__file__).parents[1] / "checkpoint" / "checkpoints"
GPU = "example.com/gpu"


def command(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["checkpoint", *map(str, arguments)])


def holding(response: bytes | None, *, device_ids: tuple[str, ...] = ("a", "b")) -> Checkpoint:
    allocation = Allocation("uid-1", "main", GPU, {0: device_ids, 1: device_ids[:1]}, response)
    sockets, unlisted = (PluginSocket(GPU, "gpu.sock"),), (UnlistedContainer("uid-1", "main", "c-1", "s-1"),)
    cordons = {GPU: Cordons("object-1", {"a": Cordon("fan", "alice")}, {"b": Cordon()})}
    return Checkpoint((allocation,), {GPU: device_ids}, "boot-1", sockets, unlisted=unlisted, cordons=cordons)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.json"


def test_show_for_people(file: Path) -> None:
    file.write_text(encode(holding(EVERYTHING)))
    shown = command("show", file)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "Checkpoint version 2, checksum valid, boot boot-1",
        "",
        "RESOURCE         HEALTHY  SOCKET    DEVICES",
        "example.com/gpu  2        gpu.sock  a b",
        "",
        "Pod uid-1, container main, example.com/gpu",
        "  NUMA node 0: a b",
        "  NUMA node 1: a",
        "  env GPUS=a",
        "  device /dev/gpu0 from /dev/gpu3 (rw)",
        "  mount /lib/gpu from /opt/gpu (ro)",
        "  annotation gpu.example.com/a=1",
        "  cdi device example.com/gpu=a",
    ]


def test_show_as_json(file: Path) -> None:
    file.write_text(encode(holding(EVERYTHING)))
    shown = json.loads(command("show", file, "-o", "json").stdout)
    (container,) = shown.pop("containers")
    assert (container["startsWith"], container["conflicts"]) == (shown["allocations"][0]["answer"], [])
    assert shown == {
        "version": 2,
        "bootID": "boot-1",
        "journalLines": 0,
        "registeredDevices": {GPU: ["a", "b"]},
        "endpoints": [{"resourceName": GPU, "endpoint": "gpu.sock"}],
        "cordons": {
            GPU: {
                "uid": "object-1",
                "inSpec": {"a": {"reason": "fan", "by": "alice", "at": ""}},
                "remembered": {"b": {"reason": "", "by": "", "at": ""}},
            }
        },
        "unlistedContainers": [{"podUID": "uid-1", "container": "main", "containerID": "c-1"}],
        "allocations": [
            {
                "podUID": "uid-1",
                "container": "main",
                "resourceName": GPU,
                "deviceIDs": ["a", "b"],
                "deviceIDsByNUMANode": {"0": ["a", "b"], "1": ["a"]},
                "answer": {
                    "envs": {"GPUS": "a"},
                    "mounts": [{"containerPath": "/lib/gpu", "hostPath": "/opt/gpu", "readOnly": True}],
                    "devices": [{"containerPath": "/dev/gpu0", "hostPath": "/dev/gpu3", "permissions": "rw"}],
                    "annotations": {"gpu.example.com/a": "1"},
                    "cdiDevices": ["example.com/gpu=a"],
                },
            }
        ],
    }


@pytest.mark.parametrize(
    ("name", "version", "allocations"),
    [("v1-two-pods", 1, 2), ("v2-no-pods", 2, 0), ("v2-one-pod-no-numa", 2, 1), ("v2-two-gpus-numa1", 2, 1)],
)
def test_kubelets_own_files(name: str, version: int, allocations: int) -> None:
    path = SAMPLES / f"{name}.json"
    verified = command("verify", path)
    assert (verified.exit_code, verified.stderr) == (0, "")
    assert f"valid; version {version}, allocations: {allocations}, resources: 1" in verified.stdout
    document = json.loads(command("show", path, "-o", "json").stdout)
    assert document["version"] == version
    assert [a["answer"] is not None for a in document["allocations"]] == [True] * allocations


def corrupted(change: dict[str, Any]) -> bytes:
    return json.dumps({**json.loads(encode(holding(EVERYTHING))), **change}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b'{"Data":', "not JSON", id="cut off"),
        pytest.param(b"[]", "Expected `object`", id="something else"),
        pytest.param(b"\x7fELF\x80", "not UTF-8 text (byte 4)", id="binary"),
        pytest.param(corrupted({"Checksum": 1}), "checksum is 1, but the content's is", id="checksum"),
        pytest.param(corrupted({"Data": {"PodDeviceEntries": [{}], "RegisteredDevices": {}}}), "missing", id="a field"),
        pytest.param(b'{"x":' + b"[" * 100_000, "not JSON", id="too deep"),
    ],
)
@pytest.mark.parametrize("subcommand", ["show", "verify"])
def test_a_corrupt_file_is_one_line(file: Path, content: bytes, message: str, subcommand: str) -> None:
    file.write_bytes(content)
    result = command(subcommand, file)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert result.stderr.startswith(f"Error: {file}: corrupt: ")
    assert message in result.stderr


def test_an_answer_that_cannot_be_decoded_is_found(file: Path) -> None:
    file.write_text(encode(holding(b"\x0a\xff")))
    verified = command("verify", file)
    assert verified.exit_code == 1
    assert "example.com/gpu of container main of pod uid-1: AllocResp cannot be decoded (2 bytes)" in verified.stderr
    assert "  response: AllocResp cannot be decoded (2 bytes)" in command("show", file).stdout
    (entry,) = json.loads(command("show", file, "-o", "json").stdout)["allocations"]
    assert (entry["answer"], entry["problem"]) == (None, "AllocResp cannot be decoded (2 bytes)")


@pytest.mark.parametrize(
    ("make", "why"),
    [(lambda file: None, "No such file or directory"), (os.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")],
    ids=["missing", "directory", "pipe"],
)
def test_what_is_no_file_is_named_and_not_waited_for(file: Path, make: Callable[[Path], None], why: str) -> None:
    make(file)
    assert command("verify", file).stderr == f"Error: {file}: {why}\n"


def test_nothing_in_a_file_reaches_the_terminal_raw(file: Path) -> None:
    file.write_text(encode(holding(EVERYTHING, device_ids=("a\x1b[2J\n", "b\u2028"))))
    lines = command("show", file).stdout.split("\n")
    assert "  NUMA node 0: escaped:a%1B%5B2J%0A escaped:b%E2%80%A8" in lines
    assert all(line.isprintable() for line in lines)


class TestJournal:
    """The journal beside the file."""

    @pytest.fixture
    def file(self, file: Path) -> Path:
        store = CheckpointStore(file.parent)
        store.save(holding(EVERYTHING))
        store.save(holding(None, device_ids=("b", "c")))
        store.close()
        return file

    def test_it_is_shown(self, file: Path) -> None:
        first, *others = command("show", file).stdout.splitlines()
        assert first == "Checkpoint version 2, checksum valid, boot boot-1, with 1 line of its journal"
        assert "  NUMA node 0: b c" in others
        shown = json.loads(command("show", file, "-o", "json").stdout)
        assert (shown["journalLines"], shown["allocations"][0]["deviceIDs"]) == (1, ["b", "c"])

    @pytest.mark.parametrize(
        ("octets", "damage"), [(b"", b"?"), (b"uid-1", b"tid-1")], ids=["before it", "a flipped bit in its last line"]
    )
    def test_damage_is_found(self, file: Path, octets: bytes, damage: bytes) -> None:
        journal = file.parent / f"{file.name}.journal"
        journal.write_bytes(journal.read_bytes().replace(octets, damage, 1))
        damaged = command("verify", file)
        assert (damaged.exit_code, damaged.stdout) == (1, "")
        assert damaged.stderr == f"Error: {file}: corrupt: line 2 of the journal is damaged\n"


@pytest.mark.kubelet("scenario 27")
def test_the_responses_for_a_container_are_merged_and_a_conflict_is_shown(file: Path) -> None:
    other = api_pb2.ContainerAllocateResponse(envs={"GPUS": "z", "NIC": "eth1"}).SerializeToString()
    nic = Allocation("uid-1", "main", "example.com/nic", {-1: ("eth1",)}, other)
    gpu = holding(EVERYTHING)
    file.write_text(encode(Checkpoint((*gpu.allocations, nic), gpu.registered)))
    (container,) = json.loads(command("show", file, "-o", "json").stdout)["containers"]
    assert container["podUID"] == "uid-1"
    assert container["startsWith"]["envs"] == {"GPUS": "a", "NIC": "eth1"}
    assert container["startsWith"]["cdiDevices"] == ["example.com/gpu=a"]
    assert container["conflicts"] == [
        {"what": "env", "name": "GPUS", "used": "example.com/gpu", "passedOver": "example.com/nic"}
    ]
    assert command("show", file).stdout.splitlines()[-1] == (
        "CONFLICT in container main of pod uid-1: env GPUS: example.com/gpu's is used, example.com/nic's is ignored"
    )


@pytest.mark.parametrize(("scope", "conflicts"), [("built-in GPUs", ["A"]), ("domain example.com", ["A", "V"])])
def test_what_the_gpus_of_a_container_are_joined_in_is_no_conflict(
    file: Path, scope: str, conflicts: list[str]
) -> None:
    def held(name: str, device_id: str) -> Allocation:
        answer = api_pb2.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": name, "A": name})
        return Allocation("uid-1", "main", name, {-1: (device_id,)}, answer.SerializeToString())

    names = ("example.com/one", "example.com/two")
    given = held(names[0], "a"), held(names[1], "b")
    file.write_text(encode(Checkpoint(given, dict.fromkeys(names, ("a",)), scopes=dict.fromkeys(names, scope))))
    (container,) = json.loads(command("show", file, "-o", "json").stdout)["containers"]
    assert sorted(each["name"].removeprefix("NVIDIA_")[0] for each in container["conflicts"]) == conflicts
