"""PreStartContainer over a real socket: once after allocation, again after a failure, and not again after a restart."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.devicemanager.allocation import pod_allocation
from nodedevice_agent.devicemanager.pods import Container, Pod

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure

RESOURCE = "example.com/fake"
POD = Pod("uid-1", "default", "train", (Container("main", limits={RESOURCE: 2}),))
# longer than any test: it says itself when that has passed
RETRY_SECONDS = 3600.0


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice(), "b": FakeDevice()}, pre_start_required=True)
    yield plugin
    await plugin.stop()


def reasons(manager: HostedManager) -> list[str]:
    return [waiting.reason for waiting in manager.manager.pending(RESOURCE)]


async def failed_call(manager: HostedManager, plugin: FakePlugin) -> None:
    """The plugin registers, and POD's call fails."""
    await manager.register(plugin)
    plugin.knobs.pre_start_error = RpcFailure(grpc.StatusCode.INTERNAL, "cannot reset")
    manager.pods(POD)
    await manager.until(lambda: reasons(manager) == ["PreStartFailed"])


@pytest.mark.kubelet("behaviour 57")
async def test_is_retried_until_it_succeeds(
    tmp_path: Path, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_allocation, "FIRST_RETRY_SECONDS", RETRY_SECONDS)
    monkeypatch.setattr(pod_allocation, "LONGEST_RETRY_SECONDS", RETRY_SECONDS)
    async with hosted(tmp_path) as manager:
        await failed_call(manager, plugin)
        (waiting,) = manager.manager.pending(RESOURCE)
        assert "cannot reset" in waiting.message
        plugin.knobs.pre_start_error = None
        manager.time_passes(RETRY_SECONDS)
        await manager.until(lambda: reasons(manager) == [])
        called = plugin.calls_of("PreStartContainer")
        assert [call.device_ids for call in called] == [("a", "b")] * 2
        methods = [call.method for call in plugin.calls]
        assert methods.index("Allocate") < methods.index("PreStartContainer")
    await plugin.wait_for_streams(0)
    async with hosted(tmp_path, [POD]) as manager:
        await manager.until(lambda: manager.available(RESOURCE) == 0)
        # what comes after a call that must not come: another pod's, and that one alone
        await plugin.update({name: FakeDevice() for name in "abcd"})
        await manager.until(lambda: manager.available(RESOURCE) == 2)
        manager.pods(POD, Pod("uid-2", "default", "next", POD.containers))
        await plugin.wait_for_calls("PreStartContainer", 3)
        assert [call.device_ids for call in plugin.calls_of("PreStartContainer")][2:] == [("c", "d")]


async def test_an_agent_that_ended_meanwhile_calls_again(tmp_path: Path, plugin: FakePlugin) -> None:
    async with hosted(tmp_path) as manager:
        await failed_call(manager, plugin)
    plugin.knobs.pre_start_error = None
    failed = len(plugin.calls_of("PreStartContainer"))
    await plugin.wait_for_streams(0)
    async with hosted(tmp_path, [POD]):
        (*_, call) = await plugin.wait_for_calls("PreStartContainer", failed + 1)
        assert call.device_ids == ("a", "b")
