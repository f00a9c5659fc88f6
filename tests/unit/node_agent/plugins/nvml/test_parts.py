"""What GPUs are used as, and their parts."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.plugins.nvml.devices import Refused
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import LOST
from nodedevice_agent.plugins.nvml.parts import Listing, check_request, parents, preferred_parts, uses_of
from nodedevice_agent.plugins.nvml.settings import NvmlSettings, SharesSettings
from nodedevice_api.parts import Choice, PartRules, Placement, parent_and_number, part_id

from tests.unit.node_agent.plugins.nvml import sources

GIB = 1 << 30
T4 = Gpu("GPU-a", "Tesla T4", 15 * GIB, index=0)
A100 = Gpu("GPU-b", "NVIDIA A100-SXM4-80GB", 80 * GIB - 1, numa_node=1, index=1)
GPUS = (T4, A100)


def nvml(*rules: dict[str, Any], **settings: Any) -> NvmlSettings:
    return msgspec.convert({"sharing": rules, **settings}, NvmlSettings)


def listed(settings: NvmlSettings, gpus: Sequence[Gpu] = GPUS, **troubles: Trouble) -> dict[str, Listing]:
    """troubles: by the last character of the UUID."""
    return sources.listed(settings, gpus, lambda uuid: troubles.get(uuid[-1]))


def test_shares_have_the_gpus_uuid_and_a_number() -> None:
    settings = nvml({"shares": {"replicas": 3, "renameByDefault": True}})
    found = listed(settings)["nvidia.com/gpu.shared"]
    assert [device.id for device in found.devices][:4] == ["GPU-a::0", "GPU-a::1", "GPU-a::2", "GPU-b::0"]
    assert {device.parent for device in found.devices} == {"GPU-a", "GPU-b"}
    assert {device.numa_nodes for device in found.devices if device.parent == "GPU-b"} == {(1,)}
    assert [dict(parent.attributes)["replicas"] for parent in found.parents] == ["3", "3"]
    assert settings.resource_names() == ("nvidia.com/gpu.shared",)


def test_units_are_what_fits_beside_the_reserve_and_the_rest_is_shown() -> None:
    found = listed(nvml({"memory": {"unit": "2Gi", "reserve": "512Mi"}}))["aliyun.com/gpu-mem"]
    assert parents(device.id for device in found.devices) == {"GPU-a": 7, "GPU-b": 39}
    unused = {parent.id: int(dict(parent.attributes)["unusedBytes"]) for parent in found.parents}
    assert unused == {"GPU-a": GIB, "GPU-b": 2 * GIB - 1}
    assert {dict(parent.attributes)["unitBytes"] for parent in found.parents} == {str(2 * GIB)}
    assert {parent.part_size for parent in found.parents} == {"2048Mi"}


@pytest.mark.parametrize(
    ("memory", "gpu", "reason", "words"),
    [
        ({"unit": "16Gi"}, T4, "UnitTooLarge", ["GPU-a (Tesla T4) has 15360 MiB", "16Gi"]),
        ({"unit": "1Gi", "reserve": "15Gi"}, T4, "UnitTooLarge", ["reserve of 15Gi"]),
        ({"unit": "1Mi"}, T4, "UnitTooSmall", ["more than 1000 units of 1Mi"]),
        ({}, Gpu("GPU-c"), "MemoryUnknown", ["GPU-c"]),
    ],
)
def test_a_gpu_that_cannot_be_divided_is_a_trouble_of_the_list(
    memory: dict[str, str], gpu: Gpu, reason: str, words: list[str]
) -> None:
    other = Gpu("GPU-d", "other", 64 * GIB)
    found = listed(nvml({"memory": memory}), [gpu, other] if "unit" not in memory else [gpu])["aliyun.com/gpu-mem"]
    (trouble,) = found.troubles
    assert trouble.reason == reason
    assert all(word in trouble.message for word in words)
    # the next one is divided all the same
    assert [parent.id for parent in found.parents] == (["GPU-d"] if "unit" not in memory else [])


def test_the_parts_of_a_broken_gpu_are_unhealthy_and_their_gpu_has_the_reason() -> None:
    found = listed(nvml({"shares": {"replicas": 2}}), a=LOST)["nvidia.com/gpu"]
    assert [device.is_healthy for device in found.devices] == [False, False, True, True]
    assert [parent.reason for parent in found.parents] == ["GpuLost", ""]


def test_rules_select_by_model_and_index_and_one_is_for_all_others() -> None:
    of_t4 = {"models": ["*T4*"], "shares": {"replicas": 2, "resourceName": "a.b/t4"}}
    settings = nvml(of_t4, {"models": ["*A100*"], "indexes": [1, 2], "whole": {}}, {"memory": {}})
    gpus = [T4, A100, Gpu("GPU-c", "NVIDIA A100-SXM4-80GB", GIB, index=5)]
    names = ("a.b/t4", "nvidia.com/gpu", "aliyun.com/gpu-mem")
    assert tuple(use.resource_name for gpu in gpus for use in uses_of(gpu, settings)) == names
    assert settings.resource_names() == names


def test_a_gpu_that_two_rules_match_is_listed_but_not_offered() -> None:
    settings = nvml(
        {"models": ["Tesla*"], "memory": {}}, {"indexes": [0], "shares": {"replicas": 2, "resourceName": "a.b/c"}}
    )
    by_name = listed(settings)
    assert "a.b/c" not in by_name
    found = by_name["aliyun.com/gpu-mem"]
    assert not any(device.is_healthy for device in found.devices)
    (gpu,) = found.parents
    assert gpu.reason == "TwoSharingRules"
    words = ["GPU-a", "Tesla T4", "sharing[0] (models Tesla*)", "sharing[1] (indexes 0)"]
    assert all(word in gpu.message for word in words)


def test_more_than_one_share_is_refused_where_that_is_set() -> None:
    ids = ["GPU-a::0", "GPU-b::0"]
    check_request(ids, SharesSettings(replicas=2))
    check_request(ids[:1], SharesSettings(replicas=2, fail_requests_greater_than_one=True))
    with pytest.raises(Refused, match="maximum request size for shared resources is 1; found 2"):
        check_request(ids, SharesSettings(replicas=2, fail_requests_greater_than_one=True))


FREE = [*(part_id("GPU-a", n) for n in range(6)), *(part_id("GPU-b", n) for n in range(3)), part_id("GPU-c", 0)]


@pytest.mark.parametrize(
    ("rules", "must", "size", "chosen"),
    [
        (PartRules(Placement.SAME_PARENT), [], 2, ["GPU-b::0", "GPU-b::1"]),
        (PartRules(Placement.SAME_PARENT), [], 5, [f"GPU-a::{n}" for n in range(5)]),
        (PartRules(Placement.SAME_PARENT, Choice.SPREAD), [], 1, ["GPU-a::0"]),
        (PartRules(Placement.SAME_PARENT), ["GPU-a::9"], 2, ["GPU-a::9", "GPU-a::0"]),
        (PartRules(Placement.DISTINCT_PARENTS), [], 2, ["GPU-c::0", "GPU-b::0"]),
        (PartRules(Placement.DISTINCT_PARENTS, Choice.SPREAD), [], 2, ["GPU-a::0", "GPU-b::0"]),
        (PartRules(Placement.DISTINCT_PARENTS), ["GPU-c-9"], 2, ["GPU-c-9", "GPU-b::0"]),
    ],
)
def test_preferred_parts(rules: PartRules, must: list[str], size: int, chosen: list[str]) -> None:
    assert preferred_parts(rules, FREE, must, size) == chosen


@given(st.sets(st.sampled_from(FREE), min_size=1), st.data())
def test_a_placement_is_kept_where_it_can_be(free: set[str], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, len(free)))
    counts = parents(free)
    same = preferred_parts(PartRules(Placement.SAME_PARENT), free, [], size)
    assert len(set(same)) == size
    assert set(same) <= free
    if max(counts.values()) >= size:
        assert len(parents(same)) == 1
    apart = preferred_parts(PartRules(Placement.DISTINCT_PARENTS), free, [], size)
    assert len(set(apart)) == size
    assert len(parents(apart)) == min(size, len(counts))
    assert all(parent_and_number(part) is not None for part in apart)
