"""Shares of GPUs that an MPS daemon keeps apart."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, Mount
from nodedevice_agent.plugins.nvml.devices import Refused
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mps import with_mps
from nodedevice_agent.plugins.nvml.parts import HeldParts
from nodedevice_agent.plugins.nvml.settings import MpsSettings, SharesSettings
from nodedevice_agent.plugins.nvml.source import NvmlSource

from tests.unit.node_agent.plugins.nvml.sources import Served, place

GIB = 1 << 30
T4 = Gpu("GPU-z", "Tesla T4", 15 * GIB, "0000:1a:00.0", index=0)
A100 = Gpu("GPU-a", "A100", 80 * GIB, "0000:3b:00.0", index=1)
# one that came back after the others were seen may have the index of another
EARLY = Gpu("GPU-e", "T4", 15 * GIB, "0000:3b:00.0", index=0)
LATE = Gpu("GPU-l", "A100", 80 * GIB, "0000:1a:00.0", index=0)


def shares(replicas: int) -> SharesSettings:
    return SharesSettings(replicas=replicas)


@pytest.mark.parametrize(
    ("held", "percentage", "limits"),
    [
        ([HeldParts(T4, shares(4), 1)], "25", "0=3840M"),
        ([HeldParts(T4, shares(3), 1)], "33", "0=5120M"),
        ([HeldParts(T4, SharesSettings(replicas=4, reserve="1Gi"), 1)], "25", "0=3584M"),
        # in the order in which CUDA numbers them; the percentage is one for all
        ([HeldParts(A100, shares(8), 1), HeldParts(T4, shares(4), 1)], "12", "0=3840M,1=10240M"),
        ([HeldParts(LATE, shares(8), 1), HeldParts(EARLY, shares(4), 1)], "12", "0=10240M,1=3840M"),
        ([HeldParts(A100, shares(8), 3)], "37", "0=30720M"),
        ([HeldParts(A100, shares(1000), 1)], "1", "0=81M"),
        # the least that a limit can be
        ([HeldParts(replace(T4, memory_bytes=GIB), shares(1000), 1)], "1", "0=1M"),
    ],
)
def test_limits_are_the_shares(held: list[HeldParts], percentage: str, limits: str) -> None:
    made = with_mps(ContainerAllocation(env={"A": "b"}), MpsSettings("/run/mps", "/run/shm"), held)
    numbers = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limits, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage}
    assert made.env == {"A": "b", "CUDA_MPS_PIPE_DIRECTORY": "/run/mps", **numbers}
    assert made.mounts == (Mount("/run/mps", "/run/mps"), Mount("/run/shm", "/dev/shm"))


@pytest.mark.parametrize(
    ("gpu", "reserve", "named"),
    [
        pytest.param(Gpu("GPU-b"), "0Gi", ["GPU-b", "take mps out", "whole"], id="memory that is not reported"),
        pytest.param(T4, "15Gi", ["GPU-z has 15360 MiB", "smaller reserve"], id="nothing beside the reserve"),
    ],
)
def test_a_limit_that_cannot_be_set_is_never_left_out(gpu: Gpu, reserve: str, named: list[str]) -> None:
    held = [HeldParts(A100, shares(2), 1), HeldParts(gpu, SharesSettings(replicas=2, reserve=reserve), 1)]
    with pytest.raises(Refused) as refused:
        with_mps(ContainerAllocation(), MpsSettings(), held)
    assert all(words in str(refused.value) for words in named)


def source(host: Path, **mps: Any) -> NvmlSource:
    return Served(host, T4, sharing=[{"shares": {"replicas": 2, "mps": mps}}]).source


def test_without_a_daemon_the_list_shows_why_and_nothing_is_allocated(tmp_path: Path) -> None:
    made = source(tmp_path)
    reason, message = made.devices.trouble
    assert reason == "MpsNotRunning"
    assert "/tmp/nvidia-mps/control is not there" in message
    assert all(device.is_healthy for device in made.devices.latest)
    assert [parent.id for parent in made.devices.parents] == ["GPU-z"]
    with pytest.raises(AllocationRefused, match="no MPS daemon"):
        made.allocate(["GPU-z-0"], None)


def test_with_a_daemon_a_container_gets_its_share(tmp_path: Path) -> None:
    place(tmp_path, "run/mps/control").touch()
    made = source(tmp_path, pipeDirectory="/run/mps")
    assert made.devices.trouble == ("", "")
    got = made.allocate(["GPU-z-1"], None)
    assert got.env["NVIDIA_VISIBLE_DEVICES"] == "GPU-z"
    assert got.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=7680M"
