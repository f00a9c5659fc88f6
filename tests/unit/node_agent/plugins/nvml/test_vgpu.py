"""What a container with parts of GPUs gets: compared with what another plugin answered, as a published checkpoint has it."""

import base64
import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerIdentity, HeldDevices
from nodedevice_agent.plugins.nvml.environment import GPUSHARE_PREFIX
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_api.names import SM_PERCENT_ANNOTATION
from nodedevice_api.parts import part_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.unit.node_agent.plugins.nvml.sources import Served, place

GIB = 1 << 30
UUID = "f320f827-2a71-486b-a551-28c650dbaf1e"
OTHER_UUID = "a2ab1d63-8519-4ff7-9501-edc58ae1d6a4"
V100 = Gpu("GPU-709fac35-5f40-624b-90f7-b0a3db7a97a0", "Tesla V100", 32 * GIB, "0000:3b:00.0", index=0)
T4 = Gpu("GPU-fcda056f-77c6-7fdf-f7c7-6453511eaaa1", "Tesla T4", 15 * GIB, "0000:1a:00.0", index=1)
UNITS = "aliyun.com/gpu-mem"
PUBLISHED = Path(__file__).parents[2] / "checkpoint" / "checkpoints" / "corrupt-checksum.json"


def node(folder: Path, rule: Mapping[str, Any], *gpus: Gpu) -> Served:
    """Its file tree is folder/host, with a library."""
    for name in ("libvgpu.so", "ld.so.preload"):
        place(folder, f"host/usr/local/vgpu/{name}").touch()
    return Served(folder / "host", *(gpus or (V100, T4)), sharing=[rule])


async def limited(folder: Path, rule: Mapping[str, Any], *gpus: Gpu) -> Any:
    """A source to which a device manager has connected."""
    return await node(folder, rule, *gpus).connected()


def who(uid: str = UUID, container: str = "main", sm_percent: str | None = None) -> ContainerIdentity:
    annotations = {} if sm_percent is None else {SM_PERCENT_ANNOTATION: sm_percent}
    return ContainerIdentity("default", "pod", uid, container, annotations)


def parts(gpu: Gpu, count: int, first: int = 0) -> list[str]:
    return [part_id(gpu.uuid, number) for number in range(first, first + count)]


LIBRARY = {"library": "/usr/local/vgpu/libvgpu.so"}
FULL: dict[str, Any] = {"memory": {"limits": LIBRARY}}
HELD = HeldDevices(UUID, "main", tuple(parts(V100, 1)))
WITH_40 = replace(HELD, env={"CUDA_DEVICE_SM_LIMIT": "40"})


def published() -> list[tuple[str, str, api_pb2.ContainerAllocateResponse]]:
    """Pod UID, container and response of each entry; the file's checksum is wrong."""
    entries = msgspec.json.decode(PUBLISHED.read_bytes())["Data"]["PodDeviceEntries"]
    decoded = api_pb2.ContainerAllocateResponse.FromString
    return [(each["PodUID"], each["ContainerName"], decoded(base64.b64decode(each["AllocResp"]))) for each in entries]


def forms(env: Mapping[str, str]) -> dict[str, str]:
    """Without what differs in values from container to container."""
    without = {key: re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", value) for key, value in env.items()}
    return {key: re.sub(r"^\d+m$", "Nm", value) for key, value in without.items()}


def of_hami(env: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that units have for programs of gpushare."""
    return {name: value for name, value in env.items() if not name.startswith(GPUSHARE_PREFIX)}


def mounts(given: Any) -> set[tuple[str, str, bool]]:
    return {(mount.host_path, mount.container_path, mount.read_only) for mount in given.mounts}


@pytest.mark.parametrize("entry", [0, 1])
@pytest.mark.parametrize("rule", [{"shares": {"replicas": 2, "limits": LIBRARY}}, FULL], ids=["shares", "units"])
async def test_keys_mounts_and_forms_are_those_of_a_published_checkpoint(
    tmp_path: Path, rule: dict[str, Any], entry: int
) -> None:
    uid, container, theirs = published()[entry]
    ours = (await limited(tmp_path, rule)).allocate(parts(V100, 1), who(uid, container))
    assert forms(of_hami(ours.env)) == forms(theirs.envs)
    assert mounts(ours) == mounts(theirs)


@pytest.mark.parametrize(
    ("rule", "gpu", "count", "limit"),
    [
        ({"memory": {}}, V100, 16, "16384m"),
        ({"memory": {"unit": "512Mi"}}, T4, 3, "1536m"),
        ({"shares": {"replicas": 2, "limits": {}}}, V100, 1, "16384m"),
        ({"shares": {"replicas": 2, "reserve": "768Mi", "limits": {}}}, V100, 1, "16000m"),
        # floor((15360 - 0) / 7)
        ({"shares": {"replicas": 7, "limits": {}}}, T4, 1, "2194m"),
    ],
)
async def test_the_memory_limit(tmp_path: Path, rule: dict[str, Any], gpu: Gpu, count: int, limit: str) -> None:
    assert (await limited(tmp_path, rule)).allocate(parts(gpu, count), who()).env["CUDA_DEVICE_MEMORY_LIMIT_0"] == limit


async def test_shares_of_several_gpus_have_a_limit_each_in_the_drivers_order(tmp_path: Path) -> None:
    source = await limited(tmp_path, {"shares": {"replicas": 2, "limits": {}}})
    env = source.allocate([*parts(V100, 1), *parts(T4, 1)], who()).env
    # the T4 has the lower bus ID
    assert [env[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] for number in (0, 1)] == ["7680m", "16384m"]


FOUR = {"CONTAINER": "4", "POD": "4"}


@pytest.mark.parametrize("who_asks", [None, who()])
@pytest.mark.parametrize(
    ("rule", "gpu", "values"),
    [
        pytest.param({"memory": {}}, V100, FOUR | {"IDX": "0", "DEV": "32"}, id="units of a GiB"),
        pytest.param({"memory": {}}, replace(T4, index=None), FOUR | {"DEV": "15"}, id="a GPU without a number"),
        pytest.param({"shares": {"replicas": 8, "resourceName": UNITS}}, V100, {}, id="shares of that name"),
    ],
)
async def test_units_of_gpushares_name_have_its_variables(
    tmp_path: Path, rule: dict[str, Any], gpu: Gpu, values: dict[str, str], who_asks: ContainerIdentity | None
) -> None:
    """As gpushare's plugin sets them: a program takes CONTAINER / DEV of the memory. The reserve is part of DEV."""
    source = await limited(tmp_path, rule, gpu)
    env = source.allocate(parts(gpu, 4) if "memory" in rule else parts(gpu, 1), who_asks).env
    found = {name.removeprefix(GPUSHARE_PREFIX): value for name, value in env.items() if GPUSHARE_PREFIX in name}
    assert found == values
    assert env["NVIDIA_VISIBLE_DEVICES"] == gpu.uuid


@pytest.mark.parametrize("missing", ["libvgpu.so", "ld.so.preload"])
async def test_a_library_that_is_not_there_is_a_condition_and_no_container_starts(tmp_path: Path, missing: str) -> None:
    served = node(tmp_path, FULL)
    source = await served.connected()
    assert source.devices.trouble == ("", "")
    (tmp_path / "host/usr/local/vgpu" / missing).unlink()
    served.publish()
    reason, message = source.devices.trouble
    assert (reason, f"/usr/local/vgpu/{missing} not found" in message) == ("LimitLibraryMissing", True)
    with pytest.raises(AllocationRefused, match="install it on the node"):
        source.allocate(parts(V100, 1), who())


class TestMultiprocessors:
    @pytest.mark.parametrize("asked", ["300", "abc", "0", "-1", "", "10.5", "٣"])
    async def test_an_annotation_that_is_no_percentage(self, tmp_path: Path, asked: str) -> None:
        source = await limited(tmp_path, FULL)
        with pytest.raises(AllocationRefused, match=r"nodedevice\.io/sm-percent.*from 1 to 100"):
            source.allocate(parts(V100, 1), who(sm_percent=asked))

    async def test_an_annotation_within_what_is_left(self, tmp_path: Path) -> None:
        source = await limited(tmp_path, FULL)
        assert source.allocate(parts(V100, 1), who(sm_percent="70")).env["CUDA_DEVICE_SM_LIMIT"] == "70"
        with pytest.raises(AllocationRefused, match=r"31 percent .* 30 are left"):
            source.allocate(parts(V100, 1, 1), who(OTHER_UUID, sm_percent="31"))
        source.allocate(parts(V100, 1, 1), who(OTHER_UUID, sm_percent="30"))
        # another GPU
        source.allocate(parts(T4, 1), who(OTHER_UUID, "second", sm_percent="100"))

    @pytest.mark.parametrize(
        ("held", "asks", "left"),
        [
            pytest.param([], who(OTHER_UUID, sm_percent="100"), None, id="an ended holding leaves it"),
            pytest.param([HELD], who(OTHER_UUID, sm_percent="50"), 30, id="a call in flight counts during a sync"),
            pytest.param([WITH_40], who(OTHER_UUID, sm_percent="61"), 60, id="what a container was given counts"),
            pytest.param(None, who(container="other", sm_percent="31"), 30, id="containers of one pod run together"),
        ],
    )
    async def test_what_is_left_of_it(
        self, tmp_path: Path, held: list[HeldDevices] | None, asks: ContainerIdentity, left: int | None
    ) -> None:
        source = await limited(tmp_path, FULL)
        source.allocate(parts(V100, 1), who(sm_percent="70"))
        if held is not None:
            await source.holdings(held)
        with nullcontext() if left is None else pytest.raises(AllocationRefused, match=f"{left} are left"):
            source.allocate(parts(V100, 1, 1), asks)

    async def test_it_is_known_again_after_a_restart_and_not_before(self, tmp_path: Path) -> None:
        env = (await limited(tmp_path, FULL)).allocate(parts(V100, 1), who(sm_percent="70")).env
        source: Any = node(tmp_path, FULL).source
        with pytest.raises(AllocationRefused, match="not known yet"):
            source.allocate(parts(V100, 1, 1), who(OTHER_UUID, sm_percent="30"))
        await source.holdings([replace(HELD, env=env)])
        with pytest.raises(AllocationRefused, match="30 are left"):
            source.allocate(parts(V100, 1, 1), who(OTHER_UUID, sm_percent="31"))

    @pytest.mark.parametrize("before", ["init", "main"], ids=["an init container's", "an earlier call's"])
    async def test_a_container_takes_over_what_was_given_for_its_devices(self, tmp_path: Path, before: str) -> None:
        source = await limited(tmp_path, FULL)
        source.allocate(parts(V100, 1), who(container=before, sm_percent="70"))
        source.allocate(parts(V100, 2), who(sm_percent="70"))


async def test_a_kubelet_shows_no_container(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = node(tmp_path, {"memory": {"limits": {**LIBRARY, "smPercent": 5}}})
    source = await served.connected()
    for _ in range(2):
        given = source.allocate(parts(V100, 2), None)
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_0": "2048m", "CUDA_DEVICE_SM_LIMIT": "10", "CUDA_OVERSUBSCRIBE": "true"}
    assert of_hami(given.env) == {"NVIDIA_VISIBLE_DEVICES": V100.uuid, **limits}
    paths = {"/usr/local/vgpu/libvgpu.so", "/etc/ld.so.preload", "/tmp/vgpulock"}
    assert {mount.container_path for mount in given.mounts} == paths
    assert caplog.messages.count("limits of containers are incomplete") == 1
    served.publish()
    assert source.devices.trouble == ("KubeletAllocates", caplog.records[-1].__dict__["error"])
    with pytest.raises(AllocationRefused, match="of one GPU"):
        source.allocate([*parts(V100, 1), *parts(T4, 1)], None)
