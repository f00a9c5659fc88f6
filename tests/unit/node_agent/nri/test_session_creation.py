"""The agent's response to the creation of a container: its edits or a refusal, within the timeout."""

import asyncio
import re

import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import Validator
from nodedevice_agent.nri import session as session_module
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.runtime_handler import Recorder
from tests.unit.node_agent.nri.joined import CONTAINER, POD, RUNNING, SANDBOX, joined


async def test_without_devices_nothing_is_changed(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        assert await plugin.create_container(POD, CONTAINER) == api_pb2.ContainerAdjustment()
        assert await handler.next() == ("create", SANDBOX, RUNNING)


async def test_edits_reach_the_runtime(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits(
        {"VISIBLE": "0"},
        (ContainerMount("/in", "/out", True),),
        (DeviceFile("/dev/a", "/dev/null", "rw"),),
        {"k": "v"},
        ("a/b=c",),
    )
    async with joined(handler, runtime) as plugin:
        adjust = await plugin.create_container(POD, CONTAINER)
    assert [(e.key, e.value) for e in adjust.env] == [("VISIBLE", "0")]
    assert [(m.source, m.destination) for m in adjust.mounts] == [("/out", "/in")]
    assert [(d.path, d.type, d.major, d.minor) for d in adjust.linux.devices] == [("/dev/a", "c", 1, 3)]
    assert dict(adjust.annotations) == {"k": "v"}
    assert [d.name for d in adjust.CDI_devices] == ["a/b=c"]


async def test_a_response_longer_than_the_runtimes_buffer(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({f"NAME_{n}": "x" * 100 for n in range(2000)}, (), (), {}, ())
    async with joined(handler, runtime) as plugin:
        adjust = await plugin.create_container(POD, CONTAINER)
    assert {e.key: e.value for e in adjust.env} == handler.edits.envs


async def test_a_response_that_is_too_long_is_an_error(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({"A": "x" * 5_000_000}, (), (), {}, ())
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match="exceeds the limit") as caught:
            await plugin.create_container(POD, CONTAINER)
        handler.edits = None
        await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


async def test_a_refusal_fails_the_container_with_its_message(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        handler.refusal = "no example.com/gpu for container main; wait"
        with pytest.raises(CallFailed, match=re.escape(handler.refusal)) as caught:
            await plugin.create_container(POD, CONTAINER)
        assert caught.value.code == Code.FAILED_PRECONDITION
        assert await plugin.validate(POD, CONTAINER) == handler.refusal
        handler.refusal = ""
        assert await plugin.validate(POD, CONTAINER) == ""


async def test_a_missing_device_file_is_named(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({}, (), (DeviceFile("/dev/a", "/dev/nodedevice-none", "rw"),), {}, ())
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match="/dev/nodedevice-none"):
            await plugin.create_container(POD, CONTAINER)


async def test_cdi_that_the_runtime_would_drop_is_refused(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({}, (), (), {}, ("vendor.com/gpu=0",))
    runtime.version = "1.7.27"
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match=r"vendor.com/gpu=0 .*containerd 1.7.27"):
            await plugin.create_container(POD, CONTAINER)


async def test_a_timeout_is_an_error(handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", 0.01)
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match="container main are not ready") as caught:
            await plugin.create_container(POD, CONTAINER)
        # it must not be an error that the runtime takes for a lost plugin
        assert caught.value.code == Code.UNAVAILABLE
        handler.gate.set()
        await plugin.create_container(POD, CONTAINER)


async def test_a_runtime_with_a_shorter_timeout_shortens_ours(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.request_timeout_ms = 20
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match=r"after 0\.01 s"):
            await plugin.create_container(POD, CONTAINER)


async def test_a_pending_call_delays_no_other(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        creation = asyncio.create_task(plugin.create_container(POD, CONTAINER))
        assert (await handler.next())[0] == "create"
        await plugin.container_event("StopContainer", POD, CONTAINER)
        assert not creation.done()
        handler.gate.set()
        await creation


async def test_pending_calls_end_with_the_connection(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.gate = asyncio.Event()
    before = asyncio.all_tasks()
    async with joined(handler, runtime) as plugin:
        creation = asyncio.create_task(plugin.create_container(POD, CONTAINER))
        assert (await handler.next())[0] == "create"
    with pytest.raises(CallFailed):
        await creation
    # one turn of the loop for the cancelled to end in
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_each_validation_shows_whether_the_default_validator_is_on(
    handler: Recorder, runtime: FakeRuntime
) -> None:
    async with joined(handler, runtime) as plugin:
        for runtime.validator in True, False, True:
            await plugin.validate(POD, CONTAINER)
    assert handler.validators == [Validator.ON, Validator.OFF, Validator.ON]
