"""Checkpoint files of any content: a checkpoint that the agent can start and go on with, or CheckpointCorrupt."""

import base64
import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import Data, checksum, decode, encode
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, CheckpointCorrupt
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.kube.status import node_device_status
from nodedevice_agent.lib import filesystem
from nodedevice_api.names import node_device_name

from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import as_json, mostly, nearly, shaped, some, texts

_GOOD = encode(
    Checkpoint(
        (
            Allocation("uid-1", "main", "example.com/gpu", {-1: ("a",), 0: ("b", "c")}, b"\x0a\x01"),
            Allocation("uid-2", "init", "example.com/gpu", {1: ("d",)}, None),
        ),
        {"example.com/gpu": ("a", "b", "c", "d", "e")},
        "boot",
    )
).encode()
_OLD = (
    b'{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"example.com/gpu","DeviceIDs":["a"],'
    b'"AllocResp":"CgA="}],"RegisteredDevices":{"example.com/gpu":["a"]}},"Checksum":0}'
)

device_ids = some(mostly(st.sampled_from("abcdef"), texts))
_octets = st.binary(max_size=20).map(lambda octets: base64.b64encode(octets).decode())
resource_names = mostly(st.sampled_from(["example.com/gpu", "example.com/nic"]), texts)
entries = shaped(
    {
        "PodUID": st.one_of(st.sampled_from(["uid-1", "uid-2"]), texts),
        "ContainerName": texts,
        "ResourceName": resource_names,
        "DeviceIDs": st.one_of(
            device_ids, st.dictionaries(mostly(st.integers(-2, 70).map(str), texts), device_ids, max_size=3)
        ),
        "AllocResp": st.one_of(st.none(), _octets),
    }
)
_data = shaped(
    {"PodDeviceEntries": some(entries), "RegisteredDevices": st.dictionaries(resource_names, device_ids, max_size=3)}
)


def go_on_with(checkpoint: Checkpoint, folder: Path) -> None:
    """What the agent does with it: starts, serves a pod, tells of every resource, and saves it again."""
    manager = DeviceManager(0.0, checkpoint, waits_for_cordons=True)
    for uid in ("uid-1", "uid-3"):
        manager.pod_seen(Pod(uid, "default", uid, (Container("main", limits={"example.com/gpu": 1}),)), 1.0)
    manager.tick(1000.0)
    for resource_name in manager.resources:
        node_device_name("node-a", resource_name)
        status = node_device_status(
            snapshot(manager, resource_name), {}, wall_time="2026-01-01T00:00:00Z", version="1", runtime="none"
        )
        as_json(status).decode()
    saved = manager.checkpoint()
    filesystem.replace_durably(folder / "again.json", encode(saved))
    read = decode((folder / "again.json").read_text(encoding="utf-8"))
    assert sorted(map(repr, read.allocations)) == sorted(map(repr, saved.allocations))


@pytest.mark.parametrize("seeds", [pytest.param([_GOOD], id="version 2"), pytest.param([_OLD], id="version 1")])
def test_any_bytes(fuzz: Fuzzer, tmp_path: Path, seeds: list[bytes]) -> None:
    def check(content: bytes) -> None:
        (tmp_path / checkpoint_file.FILE_NAME).write_bytes(content)
        try:
            found = checkpoint_file.read(tmp_path)
        except CheckpointCorrupt:
            return
        assert found is not None
        go_on_with(found, tmp_path)

    fuzz(check, nearly(seeds))


def test_any_content_with_the_right_checksum(fuzz: Fuzzer, tmp_path: Path) -> None:
    """What a checksum does not protect from: another program that writes what it wants, and sums it up right."""

    def check(data: Any) -> None:
        right = 0
        with contextlib.suppress(ValueError):
            right = checksum(msgspec.json.decode(as_json(data), type=Data))
        (tmp_path / checkpoint_file.FILE_NAME).write_bytes(as_json({"Data": data, "Checksum": right}))
        try:
            found = checkpoint_file.read(tmp_path)
        except CheckpointCorrupt:
            return
        assert found is not None
        go_on_with(found, tmp_path)

    fuzz(check, _data)


def test_the_seed_itself_is_read() -> None:
    assert len(decode(_GOOD.decode()).allocations) == 2
