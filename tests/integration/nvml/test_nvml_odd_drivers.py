"""Drivers and GPUs that lack features or return wrong values: only the affected parts fail, and that is reported."""

from pathlib import Path

import pytest

from hack.fake_nvml.library import put_on_the_bus
from tests.integration.nvml.gpu_node import Node, node


@pytest.mark.parametrize(
    "function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlDeviceGetSupportedEventTypes"]
)
async def test_a_driver_without_events_polls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    before = [
        f"break * {function} NOT_SUPPORTED",
        "break 0 nvmlDeviceGetMemoryInfo NOT_SUPPORTED",
        "break 0 nvmlDeviceGetTotalEnergyConsumption UNKNOWN",
    ]
    async with node(tmp_path, "t4-pair", monkeypatch, before) as here:
        await here.until(lambda r: r.available == 2)
        assert "memoryBytes" not in dict(here.device(0).attributes)
        assert "memoryBytes" in dict(here.device(1).attributes)
        here.gpus.set(0, uncorrected_volatile=2)
        await here.until_unhealthy({0: "EccUncorrectable"})


async def test_a_driver_mismatch_is_reported_in_the_api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_the_bus(tmp_path / "host")
    async with node(tmp_path, "mismatch", monkeypatch) as here:
        found = await here.until(lambda r: bool(r.plugin_message))
        assert found.total == 0
        assert "different versions" in found.plugin_message


@pytest.mark.parametrize("error", ["UNKNOWN", "INVALID_ARGUMENT"])
async def test_a_gpu_that_fails_every_call_is_unhealthy(t4: Node, error: str) -> None:
    t4.gpus.break_function(1, "*", error)
    await t4.until_unhealthy({1: "GpuUnreadable"})
    t4.gpus.repair(1, "*")
    await t4.until(lambda r: r.available == 2)
