"""Drivers and GPUs that lack features or return wrong values: only the affected parts fail, and that is reported."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.plugins.nvml import watch

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


@pytest.mark.parametrize("machine", ["none", "no-driver"])
async def test_idle_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, machine: str
) -> None:
    caplog.set_level("INFO")
    message = asyncio.Event()
    monkeypatch.setattr(watch.log, "info", lambda event, **_: message.set() if "idle" in event else None)
    async with node(tmp_path, machine, monkeypatch) as here:
        await asyncio.wait_for(message.wait(), 60)
        assert not here.manager.manager.resources


async def test_unsupported_features_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetFieldValues"]

    before = [f"break 1 {function} NOT_SUPPORTED" for function in functions]
    async with node(tmp_path, "t4-pair", monkeypatch, before) as here:
        await here.until(lambda r: lacking(r, 1, here) == "ecc,energy,recoveryAction")
        await here.until(lambda r: lacking(r, 0, here) == "recoveryAction")


async def test_a_driver_without_event_wait_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ["break * nvmlEventSetWait FUNCTION_NOT_FOUND"]
    async with node(tmp_path, "t4-pair", monkeypatch, before, records_calls=True) as here:
        await here.until(lambda r: (lacking(r, 0, here), lacking(r, 1, here)) == ("events,recoveryAction",) * 2)
        here.gpus.set(1, uncorrected_volatile=1)
        await here.until_unhealthy({1: "EccUncorrectable"})
        assert [call.function for call in here.gpus.recorded_calls()].count("nvmlEventSetWait_v2") == 1


@pytest.mark.parametrize("error", ["UNKNOWN", "INVALID_ARGUMENT"])
async def test_a_gpu_that_fails_every_call_is_unhealthy(t4: Node, error: str) -> None:
    t4.gpus.break_function(1, "*", error)
    await t4.until_unhealthy({1: "GpuUnreadable"})
    t4.gpus.repair(1, "*")
    await t4.until(lambda r: r.available == 2)


@pytest.mark.parametrize(
    ("uuid", "message"),
    [
        (b"GPU-\xff", "its UUID is not text"),
        (b"GPU-a,all", "its UUID is 'GPU-a,all'"),
        (b"GPU-631945ff-9a4c-51a6-ad40-3ff0d8f91b68", "its UUID is another's too"),
    ],
    ids=["no text", "two words", "twice"],
)
async def test_an_invalid_uuid_affects_only_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uuid: bytes, message: str
) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, [b'set 1 uuid="' + uuid + b'"']) as here:
        found = await here.until(lambda r: r.available == 1)
        assert f"GPU 1 cannot be identified: {message}" in found.plugin_message


async def test_an_invalid_model_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, [b'set 1 name="Tesla \xff T4"']) as here:
        await here.until(lambda r: r.available == 2)
        assert ["model" in dict(here.device(place).attributes) for place in (0, 1)] == [True, False]


async def test_a_driver_without_a_version_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ["break * nvmlSystemGetDriverVersion UNKNOWN"]
    async with node(tmp_path, "t4-pair", monkeypatch, before) as here:
        await here.until(lambda r: r.available == 2)


async def test_a_gpu_may_lose_its_uuid(t4: Node) -> None:
    t4.gpus.write(b'set 1 uuid="GPU-\xff"')
    await t4.until_unhealthy({1: "GpuUnreadable"})
    t4.gpus.set(1, uuid=t4.uuids[1])
    await t4.until(lambda r: r.available == 2)


def lacking(resource: Snapshot, place: int, here: Node) -> str:
    """The features that the GPU at this position does not support."""
    attributes = {device.id: dict(device.attributes) for device in resource.devices}
    return attributes.get(here.uuids[place], {}).get("notSupported", "")
