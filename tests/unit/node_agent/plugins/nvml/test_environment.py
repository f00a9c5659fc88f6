"""One table of the variables that the plugin alone decides about, and what becomes of a container's own."""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.environment import (
    TABLE,
    Answer,
    CannotJoin,
    Overruling,
    for_holder,
    for_other,
    joined,
    unset_value,
)
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, MigInstance
from nodedevice_api.parts import part_id

from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, Served, device_file, place

GIB = 1 << 30
GPUS = [Gpu(f"GPU-{n}", "T4", 16 * GIB, f"0000:{n}a:00.0", minor=n, index=n) for n in range(2)]
MIG = msgspec.structs.replace(GPUS[0], instances=(MigInstance("MIG-0", "1g.10gb", 1, 0, 10000),))
LIBRARY = {"library": "/vgpu/libvgpu.so"}
WAYS = ["env", "deviceNodes", "cdi", "auto"]
USES: dict[str, dict[str, Any]] = {
    "whole": {},
    "instances": {"mig": "single"},
    "shares": {"sharing": [{"shares": {"replicas": 4}}]},
    "limited shares": {"sharing": [{"shares": {"replicas": 4, "limits": {**LIBRARY, "smPercent": 10}}}]},
    "shares of MPS": {"sharing": [{"shares": {"replicas": 4, "mps": {}}}]},
    "limited shares of MPS": {"sharing": [{"shares": {"replicas": 4, "mps": {}, "limits": LIBRARY}}]},
    "units": {"sharing": [{"memory": {"limits": LIBRARY}}]},
}
POD_S = [
    *("PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_VERSION"),
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "NVIDIA_VISIBLE_DEVICES_", "XCUDA_MPS_PIPE_DIRECTORY"),
]


def names() -> Iterator[str]:
    """Of each row of the table one or several that it covers."""
    for name, _ in TABLE:
        if "*" in name:
            yield from (name.replace("*", each) for each in ("CONFIG", "CLIENT_PRIORITY"))
        elif name.endswith("_n"):
            yield from (f"{name.removesuffix('_n')}_{number}" for number in (0, 15))
        else:
            yield name


NAMES = list(names())


async def answered(folder: Path, use: Mapping[str, Any], way: str) -> dict[str, str]:
    """All that the plugin answers for one GPU, and for two."""
    for path in ("vgpu/libvgpu.so", "usr/local/vgpu/ld.so.preload", "tmp/nvidia-mps/control"):
        place(folder, path).touch()
    place(folder, CAPABILITY_MINORS).write_text("gpu0/gi1/access 1\ngpu0/gi1/ci0/access 2\n")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"):
        device_file(folder, f"dev/{name}")
    source = await Served(folder, *([MIG] if "mig" in use else GPUS), **{**use, "handOver": [way]}).connected()
    ids = ["MIG-0"] if "mig" in use else [part_id(gpu.uuid, 0) if "sharing" in use else gpu.uuid for gpu in GPUS]
    found: dict[str, str] = {}
    for chosen in (ids[:1], ids[:1] if "memory" in str(use) else ids):
        found |= source.allocate(chosen, SOMEBODY).env
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
async def test_all_that_the_plugin_can_answer_is_in_the_table(tmp_path: Path, use: str, way: str) -> None:
    found = await answered(tmp_path, USES[use], way)
    assert [name for name in found if unset_value(name) is None] == []
    assert ("NVIDIA_VISIBLE_DEVICES" in found) is (way in ("env", "auto"))


class TestAContainerWithGpus:
    @pytest.mark.parametrize("name", POD_S)
    def test_keeps_every_other_one(self, name: str) -> None:
        assert unset_value(name) is None
        assert for_holder([(name, "mine"), ("NVIDIA_REQUIRE_CUDA", "x")], {}) == Overruling({})

    def test_of_an_old_image_has_no_others_by_the_lack_of_a_variable(self) -> None:
        assert for_holder([("CUDA_VERSION", "9.0")], {}).envs == {"NVIDIA_VISIBLE_DEVICES": "void"}
        assert for_holder([("CUDA_VERSION", "12"), ("NVIDIA_REQUIRE_CUDA", "cuda>=12")], {}).envs == {}

    @pytest.mark.parametrize("name", NAMES)
    def test_what_is_there_twice_cannot_be_replaced(self, name: str) -> None:
        assert for_holder([(name, "image"), (name, "pod")], {name: "given"}).stays == name
        assert for_holder([(name, "image"), (name, "given")], {name: "given"}).stays == ""


ALL, NONE, VOID = (("NVIDIA_VISIBLE_DEVICES", value) for value in ("all", "none", "void"))


def visible(devices: str) -> dict[str, str]:
    return {"NVIDIA_VISIBLE_DEVICES": devices}


class TestAContainerWithoutGpus:
    @pytest.mark.parametrize(
        ("own", "found"),
        [
            pytest.param([], None, id="no variable"),
            pytest.param([VOID], None, id="void"),
            pytest.param([NONE], None, id="the libraries alone"),
            pytest.param([ALL, NONE], None, id="a pod that wants none of its image's"),
            pytest.param([("CUDA_VERSION", "12"), ("NVIDIA_REQUIRE_CUDA", "x")], None, id="a new image without one"),
            pytest.param([ALL], visible("void"), id="all"),
            pytest.param([("NVIDIA_VISIBLE_DEVICES", "0,void")], visible("void"), id="a list"),
            pytest.param([VOID, ALL], visible("void"), id="a pod that wants more than its image"),
            pytest.param([("CUDA_VERSION", "9")], visible("void"), id="an old image without one"),
            pytest.param(
                [NONE, ("NVIDIA_MIG_MONITOR_DEVICES", "all"), ("NVIDIA_IMEX_CHANNELS", "0")],
                {"NVIDIA_MIG_MONITOR_DEVICES": "", "NVIDIA_IMEX_CHANNELS": ""},
                id="others besides none",
            ),
        ],
    )
    def test_gets_none(self, own: list[tuple[str, str]], found: dict[str, str] | None) -> None:
        given = for_other(own)
        assert (given.envs if given is not None else None) == found

    def test_what_is_there_twice_stays(self) -> None:
        given = for_other([ALL, ALL])
        assert given is not None
        assert given.stays == "NVIDIA_VISIBLE_DEVICES"


def limits(*memory: str, sm: str = "0", **more: str) -> dict[str, str]:
    numbered = {f"CUDA_DEVICE_MEMORY_LIMIT_{number}": value for number, value in enumerate(memory)}
    return {"CUDA_DEVICE_SM_LIMIT": sm, "CUDA_OVERSUBSCRIBE": "true", **numbered, **more}


CACHE, PIPE = "CUDA_DEVICE_MEMORY_SHARED_CACHE", "CUDA_MPS_PIPE_DIRECTORY"
LIMITED_1 = {"CUDA_OVERSUBSCRIBE": "true", "CUDA_DEVICE_SM_LIMIT_1": "30"}


def mps(memory: str, threads: str, pipe: str = "/mps") -> dict[str, str]:
    return {**{PIPE: pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": threads, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory}}


class TestSeveralResources:
    @pytest.mark.parametrize(
        ("answers", "expected"),
        [
            pytest.param([(visible("c,a"), (0, 2)), (visible("b"), (1,))], visible("a,b,c"), id="lists"),
            pytest.param([(visible("void"), (0,)), (visible("a"), (1,))], visible("a"), id="one of them by CDI"),
            pytest.param([(limits("1m", "3m"), (0, 2)), (limits("2m"), (1,))], limits("1m", "2m", "3m"), id="numbers"),
            pytest.param(
                [(limits("1m", sm="30"), (1,)), (limits("2m"), (0,))],
                LIMITED_1 | {"CUDA_DEVICE_MEMORY_LIMIT_0": "2m", "CUDA_DEVICE_MEMORY_LIMIT_1": "1m"},
                id="limits of multiprocessors that differ",
            ),
            pytest.param(
                [({}, (0,)), (limits("2m", sm="30"), (1,))],
                LIMITED_1 | {"CUDA_DEVICE_MEMORY_LIMIT_1": "2m"},
                id="a whole GPU beside a limited one",
            ),
            pytest.param([({CACHE: "/tmp/a"}, (0,)), ({CACHE: "/tmp/b"}, (1,))], {CACHE: "/tmp/a"}, id="one cache"),
            pytest.param(
                [(mps("0=1M,1=3M", "50"), (0, 2)), (mps("0=2M", "25"), (1,))],
                mps("0=1M,1=2M,2=3M", "25"),
                id="shares of one daemon",
            ),
            pytest.param([({PIPE: "/mps"}, (0,)), ({PIPE: "/mps"}, (1,))], mps("", "100"), id="a daemon alone"),
        ],
    )
    def test_are_joined(self, answers: list[tuple[dict[str, str], tuple[int, ...]]], expected: dict[str, str]) -> None:
        assert joined([Answer(f"r{n}", env, places) for n, (env, places) in enumerate(answers)]) == expected

    @pytest.mark.parametrize(
        ("one", "other", "named"),
        [
            pytest.param(mps("0=1M", "25"), mps("0=1M", "25", "/other"), "mps.pipeDirectory", id="two daemons"),
            pytest.param(mps("0=1M", "25"), {}, "different containers", id="MPS and a whole GPU"),
            pytest.param(limits(), mps("0=1M", "25"), "different containers", id="a library's limits and MPS"),
            pytest.param(limits(), limits(CUDA_OVERSUBSCRIBE="false"), "limits.oversubscribe", id="oversubscription"),
        ],
    )
    def test_or_refused_with_a_remedy(self, one: dict[str, str], other: dict[str, str], named: str) -> None:
        with pytest.raises(CannotJoin, match="a and b") as refused:
            joined([Answer("a", one, (0,)), Answer("b", other, (1,))])
        assert named in str(refused.value)

    @pytest.mark.parametrize(("one", "other"), list(combinations_with_replacement(USES, 2)))
    async def test_no_variable_is_forgotten(self, tmp_path: Path, one: str, other: str) -> None:
        """Of all pairs of uses each variable is there, with or without a number, unless the pair is refused."""
        envs = [await answered(tmp_path / str(number), USES[use], "env") for number, use in enumerate((one, other))]
        answers = [Answer(name, env, places) for name, env, places in zip("ab", envs, ((0, 1), (2, 3)), strict=True)]
        if ("MPS" in one) is not ("MPS" in other):
            with pytest.raises(CannotJoin, match="MPS"):
                joined(answers)
            return
        found = joined(answers)
        stems = {re.sub(r"_[0-9]+$", "", name) for name in found}
        assert {re.sub(r"_[0-9]+$", "", name) for env in envs for name in env} == stems
