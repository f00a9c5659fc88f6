"""GPUs in MIG mode: the names of their instances, and how they are listed."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import LOST
from nodedevice_agent.plugins.nvml.mig import MigInstance, profile_name
from nodedevice_agent.plugins.nvml.parts import Listing
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_api.extended_resources import resource_name_problem

from tests.unit.node_agent.plugins.nvml import sources

A100 = 81920 << 20
H100 = 81559 << 20


@pytest.mark.parametrize(
    ("compute", "slices", "mib", "total", "suffix", "name"),
    [
        (1, 1, 9728, A100, "", "1g.10gb"),
        (1, 1, 9728, A100, "+me", "1g.10gb+me"),
        (1, 1, 19968, A100, "", "1g.20gb"),
        (1, 2, 19968, A100, "", "1c.2g.20gb"),
        (1, 1, 4864, 40960 << 20, "", "1g.5gb"),
        (3, 3, 40448, H100, "", "3g.40gb"),
        (1, 1, 5824, 24576 << 20, "", "1g.6gb"),
        (1, 1, 9856, None, "", "1g.10gb"),
        (0, 0, 0, None, "", "0g.0gb"),
    ],
)
def test_names_of_profiles(compute: int, slices: int, mib: int, total: int | None, suffix: str, name: str) -> None:
    assert profile_name(compute, slices, mib, total, suffix) == name


def divided(uuid: str, *profiles: str) -> Gpu:
    made = tuple(MigInstance(f"MIG-{uuid}{place}", each, 1, 0, 9728) for place, each in enumerate(profiles))
    return Gpu(f"GPU-{uuid}", "A100", A100, index=0, instances=made)


WHOLE = Gpu("GPU-w", "A100", A100, index=1)


def listed(gpus: Sequence[Gpu], troubles: dict[str, Trouble] | None = None, **settings: Any) -> dict[str, Listing]:
    return sources.listed(msgspec.convert(settings, NvmlSettings), gpus, (troubles or {}).get)


@pytest.mark.parametrize("sharing", [[], [{"shares": {"replicas": 2}}], [{"memory": {}}]])
def test_a_gpu_in_mig_mode_is_never_offered_without_a_setting(sharing: list[dict[str, Any]]) -> None:
    (found,) = listed([divided("a", "1g.10gb")], sharing=sharing).values()
    assert not any(device.is_healthy for device in found.devices)
    assert {device.reason for device in found.parents or found.devices} == {"MigMode"}


def test_each_profile_has_a_name_of_its_own() -> None:
    gpus = [divided("a", "1g.10gb", "1g.10gb", "1g.10gb+me", "1c.2g.20gb"), divided("b", "1g.10gb"), WHOLE]
    found = listed(gpus, mig="mixed")
    expected = {
        "mig-1g.10gb": "MIG-a0 MIG-a1 MIG-b0",
        "mig-1g.10gb.me": "MIG-a2",
        "mig-1c.2g.20gb": "MIG-a3",
        "gpu": "GPU-w",
    }
    assert {name: [device.id for device in its.devices] for name, its in found.items()} == {
        f"nvidia.com/{name}": ids.split() for name, ids in expected.items()
    }
    assert not any(resource_name_problem(name) for name in found)
    (device,) = found["nvidia.com/mig-1c.2g.20gb"].devices
    assert device.parent == "GPU-a"
    attributes = {"profile": "1c.2g.20gb", "gpuInstance": "1", "computeInstance": "0", "memoryBytes": str(9728 << 20)}
    assert attributes.items() <= dict(device.attributes).items()


def test_instances_of_one_profile_are_named_as_gpus() -> None:
    (found,) = listed([divided("a", "1g.10gb", "1g.10gb"), divided("b", "1g.10gb")], mig="single").values()
    assert [device.id for device in found.devices if device.is_healthy] == ["MIG-a0", "MIG-a1", "MIG-b0"]
    assert len(found.devices) == 3


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([divided("a", "1g.10gb", "2g.20gb")], "1g.10gb and 2g.20gb"),
        ([divided("a", "1g.10gb"), divided("b", "2g.20gb")], "1g.10gb and 2g.20gb"),
        ([divided("a", "1g.10gb"), WHOLE], "1g.10gb and whole GPUs"),
        ([divided("a", "1g.10gb", "2g.20gb"), WHOLE], "1g.10gb and 2g.20gb and whole GPUs"),
    ],
)
def test_instances_that_differ_are_not_offered_under_one_name(gpus: list[Gpu], words: str) -> None:
    (found,) = listed(gpus, mig="single").values()
    broken = [device for device in found.devices if device.id.startswith("MIG-")]
    assert not any(device.is_healthy for device in broken)
    assert {device.reason for device in broken} == {"MigProfilesDiffer"}
    assert all(words in device.message for device in broken)
    # whole GPUs are whole GPUs
    assert all(device.is_healthy for device in found.devices if device.id == "GPU-w")


@pytest.mark.parametrize("mig", ["single", "mixed"])
def test_a_gpu_without_instances_is_a_trouble_of_the_list(mig: str) -> None:
    (found,) = listed([divided("a"), divided("b")], mig=mig).values()
    assert not found.devices
    assert [trouble.reason for trouble in found.troubles] == ["NoMigInstances"] * 2
    assert all(gpu in trouble.message for gpu, trouble in zip(("GPU-a", "GPU-b"), found.troubles, strict=True))


@pytest.mark.parametrize("mig", ["single", "mixed"])
def test_the_instances_of_a_broken_gpu_have_its_reason(mig: str) -> None:
    (found,) = listed([divided("a", "1g.10gb", "1g.10gb")], {"GPU-a": LOST}, mig=mig).values()
    assert [device.reason for device in found.devices] == ["GpuLost", "GpuLost"]
