"""Plugins that exceed limits or expose bugs: each fails alone, without effect on other plugins."""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint import writer as checkpoint_writer
from nodedevice_agent.devicemanager.allocation import pod_allocation
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.registration import MAX_CONNECTIONS_OF_A_SOCKET
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.errors import PluginFailed
from nodedevice_api.device_details_pb2 import ContainerAllocateDetails
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_common.paced_log import SUBJECT_AT_ONCE
from prometheus_client import REGISTRY

from tests.fakes.hosted_manager import HostedManager, hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin, Knobs, RpcFailure
from tests.fakes.polling import until
from tests.unit.node_agent.deviceplugin.conftest import Start, remembered

ODD = "example.com/odd"
GOOD = "example.com/good"


def value(name: str, resource_name: str = GOOD) -> float | None:
    return REGISTRY.get_sample_value(f"nodedevice_agent_{name}", {"resource_name": resource_name})


def said(caplog: pytest.LogCaptureFixture, text: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if record.message == text]


async def test_a_bug_in_reading_one_plugins_lists_ends_only_that_plugin(
    manager: HostedManager, start: Start, join: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd, good = await start(ODD), await join(GOOD)

    def broken(octets: bytes, known: ListedDevices, **_: bool) -> None:
        raise ZeroDivisionError("unexpected")

    with monkeypatch.context() as broken_here:
        broken_here.setattr(codec, "device_list", broken)
        await odd.register()
        await odd.wait_for_lists(1)
        await odd.wait_for_streams(0)
    (logged,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (logged.getMessage(), logged.__dict__["resource_name"]) == ("device plugin dropped", ODD)
    assert logged.exc_info is not None
    assert isinstance(logged.exc_info[1], ZeroDivisionError)
    await good.update({"d0": FakeDevice(), "d1": FakeDevice()})
    await manager.until(lambda: manager.available(GOOD) == 2)
    await odd.register()
    await manager.until(lambda: manager.available(ODD) == 1)


@pytest.mark.kubelet("weak spot 28")
async def test_connections_of_one_socket_have_a_limit(manager: HostedManager, start: Start) -> None:
    odd, good = await start(ODD), await start(GOOD)
    for number in range(MAX_CONNECTIONS_OF_A_SOCKET):
        await odd.register(resource_name=f"{ODD}-{number}")
    registered = {value("registrations_total", f"{ODD}-{number}") for number in range(MAX_CONNECTIONS_OF_A_SOCKET)}
    assert registered == {1.0}
    with pytest.raises(grpc.aio.AioRpcError, match="fewer resources on one socket") as refused:
        await odd.register(resource_name=f"{ODD}-more")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    # announced in the registry it is tried again, as anything is that may pass
    with pytest.raises(PluginFailed, match="fewer resources on one socket"):
        await manager.host.connect(f"{ODD}-more", odd.socket_path)
    await good.register()
    await manager.until(lambda: manager.available(GOOD) == 1)
    assert f"{ODD}-more" not in manager.manager.resources
    await odd.wait_for_streams(MAX_CONNECTIONS_OF_A_SOCKET)
    await odd.end_streams()
    await odd.wait_for_streams(0)
    await manager.until(lambda: manager.available(f"{ODD}-0") == 0)
    await odd.register(resource_name=f"{ODD}-more")
    await manager.until(lambda: manager.available(f"{ODD}-more") == 1)


async def test_a_plugin_learns_whose_container_it_allocates_for(manager: HostedManager, join: Start) -> None:
    plugin = await join(GOOD)
    containers = (Container("main", limits={GOOD: 1}),)
    annotations = {"nodedevice.io/sm-percent": "30"}
    manager.pod_seen(Pod("u-1", "team", "train", containers, api_uid="u-2", annotations=annotations))
    await manager.until(lambda: bool(plugin.calls_of("Allocate")))
    (asked,) = plugin.calls_of("Allocate")[0].request.container_requests
    assert list(asked.devices_ids) == ["d0"]
    assert ContainerAllocateDetails.FromString(asked.SerializeToString()) == ContainerAllocateDetails.FromString(
        ContainerAllocateDetails(
            pod_namespace="team", pod_name="train", pod_uid="u-1", container="main", annotations=annotations
        ).SerializeToString()
        + api_pb2.ContainerAllocateRequest(devices_ids=["d0"]).SerializeToString()
    )


async def test_an_allocation_is_dated_by_the_wall_clock(manager: HostedManager, join: Start) -> None:
    manager.host.calls.wall_clock = lambda: 1_767_614_400.9
    await join(GOOD)
    manager.pod_seen(pod("p", GOOD, 1))
    await manager.until(lambda: bool(manager.manager.book.by_pod))
    await manager.host.saved()
    checkpoint = checkpoint_file.read(manager.folder)
    assert checkpoint is not None
    assert [a.since for a in checkpoint.allocations] == [1_767_614_400]


async def test_only_plugins_of_the_plugin_directory_are_remembered_for_the_next_start(tmp_path: Path) -> None:
    """The others are discovered again in the registry directory."""
    here, elsewhere = FakePlugin(GOOD, {"d0": FakeDevice()}), FakePlugin(ODD, {"d0": FakeDevice()})
    (tmp_path / "registry").mkdir()
    async with hosted(tmp_path) as manager:
        await manager.register(here)
        await elsewhere.start(tmp_path / "registry")
        await manager.host.connect(ODD, elsewhere.socket_path)
    for plugin in (here, elsewhere):
        await plugin.stop()
    assert [*remembered(tmp_path).values()] == [GOOD]


async def test_nothing_is_written_while_allocations_are_being_recovered(tmp_path: Path) -> None:
    """The next start would take what it finds for everything."""
    plugin = FakePlugin(GOOD, {"d0": FakeDevice()})
    async with hosted(tmp_path, is_recovering=True) as manager:
        await manager.register(plugin)
        await plugin.stop()
    # the end writes what is unwritten
    assert checkpoint_file.read(tmp_path) is None
    async with hosted(tmp_path, is_recovering=True) as manager:
        manager.manager.recovered(Checkpoint(), manager.host.now())
        manager.host.settle()
        await manager.host.saved()
        assert checkpoint_file.read(tmp_path) is not None


async def test_a_registration_during_the_end_is_rejected(tmp_path: Path) -> None:
    """Nobody would follow its lists, and the plugin would believe that it is registered."""
    plugin = FakePlugin(GOOD, {"d0": FakeDevice()})
    gate = plugin.knobs.options_gate = asyncio.Event()
    await plugin.start(tmp_path)
    try:
        async with hosted(tmp_path) as manager:
            registering = asyncio.create_task(manager.host.connect(GOOD, plugin.socket_path))
            await plugin.wait_for_calls("GetDevicePluginOptions")
        assert not registering.done()
        gate.set()
        with pytest.raises(PluginFailed, match=r"^Register of .* is stopping; register with the next one"):
            await registering
        assert GOOD not in manager.manager.resources
    finally:
        await plugin.stop()


async def test_calls_are_measured_and_logged(
    manager: HostedManager, join: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    names = ("allocate_seconds_count", "pre_start_seconds_count", "device_lists_total", "allocate_failures_total")
    before = [value(name) or 0.0 for name in names]
    plugin = await join(GOOD, "d0", "d1", pre_start_required=True)
    manager.pod_seen(pod("p", GOOD, 2))
    await until(lambda: bool(said(caplog, "devices prepared")))
    assert [(value(name) or 0.0) - then for name, then in zip(names, before, strict=True)] == [1, 1, 1, 0]
    for line in ("allocated", "devices prepared"):
        (found,) = said(caplog, line)
        assert (found["resource_name"], found["device_ids"]) == (GOOD, ["d0", "d1"])
    await plugin.stop()
    await until(lambda: bool(said(caplog, "device plugin disconnected")))
    for line in ("device plugin registered", "device plugin disconnected"):
        (found,) = said(caplog, line)
        assert (found["resource_name"], found["socket"]) == (GOOD, plugin.socket_path.name)


@pytest.mark.parametrize(
    ("knob", "metric", "text"),
    [
        ("allocate_error", "allocate_failures_total", "Allocate failed; retrying"),
        ("pre_start_error", "pre_start_failures_total", "PreStartContainer failed; retrying"),
    ],
)
async def test_a_call_that_fails_is_counted_logged_and_shown(
    knob: str, metric: str, text: str, manager: HostedManager, join: Start, caplog: pytest.LogCaptureFixture
) -> None:
    failure: Any = RpcFailure(details="no luck")
    await join(GOOD, pre_start_required=True, knobs=Knobs(**{knob: failure}))
    before = value(metric) or 0.0
    manager.pod_seen(pod("p", GOOD, 1))
    await until(lambda: bool(said(caplog, text)))
    assert (value(metric) or 0.0) >= before + 1
    failed = said(caplog, text)[0]
    assert failed["resource_name"] == GOOD
    assert "no luck" in failed["error"]
    (pending,) = manager.manager.pending(GOOD)
    assert "no luck" in pending.message


@pytest.mark.parametrize(
    ("knob", "value", "text"),
    [
        ("preferred_answer", ["d7"], "GetPreferredAllocation returned invalid device IDs; ignoring them"),
        ("preferred_answer", ["d0", "d1"], "GetPreferredAllocation returned invalid device IDs; ignoring them"),
        ("preferred_error", RpcFailure(), "GetPreferredAllocation failed; ignoring it"),
    ],
    ids=["unknown", "too many", "an error"],
)
async def test_advice_that_is_no_use_is_logged_and_not_needed(
    knob: str, value: Any, text: str, manager: HostedManager, join: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await join(GOOD, "d0", "d1", preferred_available=True, knobs=Knobs(**{knob: value}))
    manager.pod_seen(pod("p", GOOD, 1))
    await until(lambda: bool(manager.manager.book.by_pod))
    (found,) = said(caplog, text)
    assert found["resource_name"] == GOOD


async def test_what_two_plugins_serve_is_named(
    manager: HostedManager, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = await start(ODD), await start(GOOD)
    for plugin in (one, other):
        await plugin.register(resource_name=GOOD)
    await until(lambda: manager.available(GOOD) == 1)
    (found,) = said(caplog, "resource is served by several device plugins; the newest list counts")
    assert found["resource_name"] == GOOD
    assert {Path(path).name for path in found["sockets"]} == {one.socket_path.name, other.socket_path.name}


async def test_counters_begin_at_0_when_a_plugin_registers(join: Start) -> None:
    """A rate over time never includes the first value of a new series."""
    await join("begins.example.com/device", pre_start_required=True)
    names = ("allocate_failures_total", "allocate_seconds_count", "pre_start_failures_total")
    assert [value(name, "begins.example.com/device") for name in names] == [0.0, 0.0, 0.0]


async def test_an_error_of_a_list_is_logged_once(
    manager: HostedManager, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = await start(GOOD)
    plugin.knobs.raw_list = [api_pb2.Device(ID=device_id, health="Healthy") for device_id in ("a", "a")]
    await plugin.register()
    await manager.until(lambda: manager.available(GOOD) == 1)
    plugin.knobs.raw_list = [api_pb2.Device(ID=device_id, health="Healthy") for device_id in ("a", "a", "b")]
    await plugin.resend()
    await manager.until(lambda: manager.available(GOOD) == 2)
    (line,) = said(caplog, "invalid device list")
    assert line["resource_name"] == GOOD
    assert "1 listed more than once" in line["error"]


async def test_what_is_due_before_the_next_deadline_is_done_before(
    manager: HostedManager, join: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that has failed is due in no time, and the grace period of another plugin in five minutes."""
    monkeypatch.setattr(pod_allocation, "FIRST_RETRY_SECONDS", 0.01)
    odd, good = await join(ODD), await join(GOOD)
    await odd.stop()
    await manager.until(lambda: manager.available(ODD) == 0)
    good.knobs.allocate_error = RpcFailure()
    manager.pod_seen(pod("p", GOOD, 1))
    await until(lambda: len(good.calls_of("Allocate")) > 1)
    good.knobs.allocate_error = None
    await until(lambda: bool(manager.manager.book.by_pod))


async def test_a_second_socket_of_a_known_resource_is_remembered_at_once(
    manager: HostedManager, start: Start, join: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is written, and when: a kill may come before."""
    monkeypatch.setattr(checkpoint_writer, "WHOLE_AFTER_SECONDS", 3600.0)
    one, other = await join(GOOD), await start(ODD)
    await until(lambda: remembered(manager.folder).keys() == {one.socket_name})
    await other.register(resource_name=GOOD)
    await until(lambda: remembered(manager.folder).keys() == {one.socket_name, other.socket_name})


async def test_a_plugin_that_registers_again_and_again_costs_a_bounded_number_of_lines(
    manager: HostedManager, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Two programs that fight for one name."""
    caplog.set_level(logging.INFO)
    plugins = [await start(GOOD), await start(ODD)]
    for number in range(100):
        await plugins[number % 2].register(resource_name=GOOD)
    await manager.until(lambda: manager.available(GOOD) == 1)
    lines = Counter(record.getMessage() for record in caplog.records)
    # on a slow machine one more in ten seconds
    assert SUBJECT_AT_ONCE <= lines["device plugin registered"] <= max(lines.values()) < 50
