"""The agent as an NRI plugin of a fake runtime: registered, synchronized, refused, and rejected; events of pods and
containers, each handled once.
"""

import asyncio
import re
from typing import cast

import pytest
from nodedevice_agent.devicemanager.runtime import Validator
from nodedevice_agent.nri import session as session_module
from nodedevice_agent.nri import synchronization
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder
from tests.unit.node_agent.nri.runtime_side import CONTAINER, POD, RUNNING, SANDBOX, joined, registered


async def test_registers_and_synchronizes(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.containers = [POD], [CONTAINER]
    async with registered(handler, runtime, "07") as plugin:
        assert (plugin.registered.plugin_name, plugin.registered.plugin_idx) == ("nodedevice", "07")
        assert await handler.next() == ("synchronized", [SANDBOX], [RUNNING])
        assert await handler.next() == ("connected", "containerd", "v2.4.2", Validator.NOT_SEEN)
        # CreateContainer, PostStart-, Stop- and RemoveContainer, RemovePodSandbox, ValidateContainerAdjustment: bit n - 1 each
        assert plugin.events == 1 << 3 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 2 | 1 << 13
        # by default, a runtime creates a container without the plugin that does not respond, and so without its device
        policy = plugin.configured.failure_policy
        assert (policy.fail_request, policy.keep_connected) == (True, False)


@pytest.mark.parametrize("per_message", [1, 2, 3, 7, 100])
async def test_a_split_synchronize_is_one_event(handler: Recorder, runtime: FakeRuntime, per_message: int) -> None:
    runtime.pods = [api_pb2.PodSandbox(id=f"p{n}") for n in range(7)]
    runtime.containers = [api_pb2.Container(id=f"c{n}") for n in range(11)]
    runtime.per_message = per_message
    async with registered(handler, runtime):
        word, sandboxes, containers = await handler.next()
        assert word == "synchronized"
        assert [s.id for s in sandboxes] == [f"p{n}" for n in range(7)]
        assert [c.id for c in containers] == [f"c{n}" for n in range(11)]
        assert (await handler.next())[0] == "connected"
        assert handler.calls.empty()


async def test_a_second_synchronize_replaces_the_first(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.per_message = [POD, POD], 1
    async with joined(handler, runtime) as plugin:
        await plugin.synchronize([POD], [], 1)
        assert await handler.next() == ("synchronized", [SANDBOX], [])
        assert handler.calls.empty()


@pytest.mark.parametrize("version", ["v1.0.0", "2.3.4", "banana", "v10.1.1"])
async def test_an_unknown_version_of_nri_is_refused(handler: Recorder, runtime: FakeRuntime, version: str) -> None:
    runtime.nri_version = version
    assert re.search(f"NRI {version}.*update the agent", await ended(handler, runtime))
    assert (await runtime.failed.get()).code == Code.FAILED_PRECONDITION
    assert handler.calls.empty()


@pytest.mark.parametrize("version", ["", "unknown", "(devel)", "0.0.0-unknown", "v0.3.0", "0.13.0-rc1"])
async def test_other_versions_are_accepted(handler: Recorder, runtime: FakeRuntime, version: str) -> None:
    runtime.nri_version = version
    async with joined(handler, runtime):
        pass


@pytest.mark.parametrize(
    ("version", "known_events"), [("v2.2.0", (1 << 14) - 1), ("v2.1.4", (1 << 13) - 1), ("v2.0.5", (1 << 13) - 1)]
)
async def test_subscribes_only_to_events_that_the_runtime_has(
    handler: Recorder, runtime: FakeRuntime, version: str, known_events: int
) -> None:
    """It would end the connection."""
    runtime.version, runtime.known_events = version, known_events
    async with registered(handler, runtime) as plugin:
        assert plugin.events & 1 << 3
        assert (await handler.next())[0] == "synchronized"
        validator = Validator.NOT_SEEN if known_events & 1 << 13 else Validator.MISSING
        assert await handler.next() == ("connected", "containerd", version, validator)


@pytest.mark.parametrize(
    ("rejects", "refusal", "reason"),
    [
        (True, "", "closed the connection before it sent all its containers; its log has the reason: "),
        (False, "invalid plugin index", "did not register the plugin 10-nodedevice: invalid plugin index"),
    ],
    ids=["rejected", "not registered"],
)
async def test_a_refused_plugin_was_never_connected(
    handler: Recorder, runtime: FakeRuntime, rejects: bool, refusal: str, reason: str
) -> None:
    runtime.rejects, runtime.refusal = rejects, refusal
    assert (await ended(handler, runtime)).startswith(f"the container runtime {reason}")
    assert handler.calls.empty()


async def test_a_runtime_that_never_synchronizes(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SYNCHRONIZE_SECONDS", 0.01)
    runtime.configures = False
    assert "did not synchronize" in await ended(handler, runtime)


async def test_shutdown_ends_the_session_after_its_response(handler: Recorder, runtime: FakeRuntime) -> None:
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostDeviceStat()).run(runtime.socket))
        plugin = await runtime.plugin()
        assert await plugin.call("Shutdown", b"") == b""
        with pytest.raises(SessionEnded, match="is shutting down its plugins"):
            await session


async def test_a_list_that_is_too_long(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synchronization, "MOST_OBJECTS", 9)
    runtime.pods, runtime.per_message = [POD] * 10, 1
    assert "pods and containers; remove the ended ones" in await ended(handler, runtime)
    assert (await runtime.failed.get()).code == Code.RESOURCE_EXHAUSTED
    assert handler.calls.empty()


async def ended(handler: Recorder, runtime: FakeRuntime) -> str:
    """Why a session that is not held up from here ends."""
    async with runtime:
        with pytest.raises(SessionEnded) as caught:
            await Session(handler, "10", HostDeviceStat()).run(runtime.socket)
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "event", "word"),
    [
        ("PostStartContainer", api_pb2.POST_START_CONTAINER, "started"),
        ("StopContainer", api_pb2.STOP_CONTAINER, "ended"),
        ("RemoveContainer", api_pb2.REMOVE_CONTAINER, "ended"),
    ],
)
async def test_container_events(
    handler: Recorder, plugin: PluginConnection, method: str, event: api_pb2.Event.ValueType, word: str
) -> None:
    await plugin.container_event(method, POD, CONTAINER)
    assert await handler.next() == (word, SANDBOX, RUNNING)
    # as older runtimes send it
    await plugin.state_change(event, POD, CONTAINER)
    assert await handler.next() == (word, SANDBOX, RUNNING)


async def test_a_start_after_the_end_is_ignored(handler: Recorder, plugin: PluginConnection) -> None:
    await plugin.container_event("StopContainer", POD, CONTAINER)
    await plugin.container_event("PostStartContainer", POD, CONTAINER)
    await plugin.container_event("RemoveContainer", POD, CONTAINER)
    assert [(await handler.next())[0] for _ in range(2)] == ["ended", "ended"]
    assert handler.calls.empty()


async def test_a_removed_sandbox(handler: Recorder, plugin: PluginConnection) -> None:
    await plugin.remove_pod_sandbox(POD)
    assert await handler.next() == ("removed", SANDBOX)
    await plugin.state_change(api_pb2.REMOVE_POD_SANDBOX, POD)
    assert await handler.next() == ("removed", SANDBOX)


async def test_unsubscribed_events_are_acknowledged_and_ignored(handler: Recorder, plugin: PluginConnection) -> None:
    for event in api_pb2.RUN_POD_SANDBOX, api_pb2.STOP_POD_SANDBOX, api_pb2.START_CONTAINER, 99:
        await plugin.state_change(cast("api_pb2.Event.ValueType", event), POD, CONTAINER)
    for method in "RunPodSandbox", "StopPodSandbox":
        assert await plugin.call(method, b"") == b""
    assert handler.calls.empty()


@pytest.mark.parametrize(
    ("method", "payload", "code"),
    [
        ("UpdateContainer", b"", Code.UNIMPLEMENTED),
        ("CreateContainer", b"\xff", Code.INVALID_ARGUMENT),
        ("StopContainer", b"\xff", Code.INVALID_ARGUMENT),
        ("Synchronize", b"\x0a\xff", Code.INVALID_ARGUMENT),
    ],
)
async def test_invalid_requests_are_errors(plugin: PluginConnection, method: str, payload: bytes, code: Code) -> None:
    with pytest.raises(CallFailed) as caught:
        await plugin.call(method, payload)
    assert caught.value.code == code
    await plugin.create_container(POD, CONTAINER)


async def test_an_exception_is_an_error_and_is_logged(
    handler: Recorder, plugin: PluginConnection, caplog: pytest.LogCaptureFixture
) -> None:
    handler.error = ZeroDivisionError("a fault")
    with pytest.raises(CallFailed) as caught:
        await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.INTERNAL
    with pytest.raises(CallFailed):
        await plugin.container_event("PostStartContainer", POD, CONTAINER)
    assert [record.message for record in caplog.records].count("call handler failed") == 2
