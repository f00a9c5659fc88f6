"""The runtime's events of pods and containers: each handled once; invalid ones are acknowledged with an error."""

from typing import cast

import pytest
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.runtime_handler import Recorder
from tests.unit.node_agent.nri.joined import CONTAINER, POD, RUNNING, SANDBOX, joined


@pytest.mark.parametrize(
    ("method", "word"),
    [("PostStartContainer", "started"), ("StopContainer", "ended"), ("RemoveContainer", "ended")],
)
async def test_container_events(handler: Recorder, runtime: FakeRuntime, method: str, word: str) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.container_event(method, POD, CONTAINER)
        assert await handler.next() == (word, SANDBOX, RUNNING)


async def test_a_start_after_the_end_is_ignored(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.container_event("StopContainer", POD, CONTAINER)
        await plugin.container_event("PostStartContainer", POD, CONTAINER)
        await plugin.container_event("RemoveContainer", POD, CONTAINER)
        assert [(await handler.next())[0] for _ in range(2)] == ["ended", "ended"]
        assert handler.calls.empty()


async def test_a_removed_sandbox(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.remove_pod_sandbox(POD)
        assert await handler.next() == ("removed", SANDBOX)


@pytest.mark.parametrize(
    ("event", "word"),
    [
        (api_pb2.POST_START_CONTAINER, "started"),
        (api_pb2.STOP_CONTAINER, "ended"),
        (api_pb2.REMOVE_CONTAINER, "ended"),
        (api_pb2.REMOVE_POD_SANDBOX, "removed"),
    ],
)
async def test_state_changes_of_older_runtimes(
    handler: Recorder, runtime: FakeRuntime, event: api_pb2.Event.ValueType, word: str
) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.state_change(event, POD, CONTAINER)
        assert (await handler.next())[:2] == (word, SANDBOX)


async def test_events_without_subscription_are_acknowledged_and_ignored(
    handler: Recorder, runtime: FakeRuntime
) -> None:
    async with joined(handler, runtime) as plugin:
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
async def test_an_invalid_request_is_an_error(
    handler: Recorder, runtime: FakeRuntime, method: str, payload: bytes, code: Code
) -> None:
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed) as caught:
            await plugin.call(method, payload)
        assert caught.value.code == code
        await plugin.create_container(POD, CONTAINER)


async def test_an_exception_is_an_error_and_is_logged(
    handler: Recorder, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(handler, runtime) as plugin:
        handler.error = ZeroDivisionError("a fault")
        with pytest.raises(CallFailed) as caught:
            await plugin.create_container(POD, CONTAINER)
        assert caught.value.code == Code.INTERNAL
        with pytest.raises(CallFailed):
            await plugin.container_event("PostStartContainer", POD, CONTAINER)
    assert [record.message for record in caplog.records].count("call handler failed") == 2
