"""The agent as an NRI plugin, at the other end a runtime of our own: taken in, told what happens, and answering in time."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from nodedevice_agent.core.container_edits import ContainerEdits, DeviceFile, Mount
from nodedevice_agent.core.runtime import ContainerState, DeviceNode, RunningContainer, Sandbox, Validator
from nodedevice_agent.edges.nri import session as session_module
from nodedevice_agent.edges.nri.dialling import SessionEnded
from nodedevice_agent.edges.nri.host_looks import HostLooks
from nodedevice_agent.edges.nri.session import Session
from nodedevice_agent.edges.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder

POD = api_pb2.PodSandbox(
    id="sandbox-1", name="trainer", namespace="team-a", uid="uid-1", labels={"app": "x"}, annotations={"a": "b"}
)
CONTAINER = api_pb2.Container(
    id="container-1",
    pod_sandbox_id="sandbox-1",
    name="main",
    state=api_pb2.CONTAINER_CREATED,
    annotations={"c": "d"},
    env=["PATH=/bin", "EMPTY="],
    linux=api_pb2.LinuxContainer(devices=[api_pb2.LinuxDevice(path="/dev/null", type="c", major=1, minor=3)]),
)
SANDBOX = Sandbox("sandbox-1", "trainer", "team-a", "uid-1", {"a": "b"}, {"app": "x"})
RUNNING = RunningContainer(
    "container-1",
    "sandbox-1",
    "main",
    ContainerState.CREATED,
    ("PATH=/bin", "EMPTY="),
    (DeviceNode("/dev/null", "c", 1, 3),),
    {"c": "d"},
)


@pytest.fixture
def handler() -> Recorder:
    return Recorder()


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    return FakeRuntime(tmp_path / "nri.sock")


async def ended(handler: Recorder, runtime: FakeRuntime) -> str:
    """Why a session that is not held up from here ends."""
    async with runtime:
        with pytest.raises(SessionEnded) as caught:
            await Session(handler, "10", HostLooks()).run(runtime.socket)
    return str(caught.value)


@asynccontextmanager
async def joined(handler: Recorder, runtime: FakeRuntime) -> AsyncIterator[PluginConnection]:
    """Both sides, and what the handler hears at the beginning behind us."""
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostLooks()).run(runtime.socket))
        plugin = await runtime.plugin()
        assert (await handler.next())[0] == "synchronized"
        assert (await handler.next())[0] == "connected"
        yield plugin
        assert not session.done()
        await plugin.close()
        with pytest.raises(SessionEnded):
            await session


async def test_is_taken_in(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.containers = [POD], [CONTAINER]
    async with runtime:
        session = asyncio.create_task(Session(handler, "07", HostLooks()).run(runtime.socket))
        plugin = await runtime.plugin()
        assert (plugin.registered.plugin_name, plugin.registered.plugin_idx) == ("nodedevice", "07")
        assert await handler.next() == ("synchronized", [SANDBOX], [RUNNING])
        assert await handler.next() == ("connected", "containerd", "v2.4.2", Validator.NOT_SEEN)
        # CreateContainer, PostStart-, Stop- and RemoveContainer, RemovePodSandbox, ValidateContainerAdjustment: bit n - 1 each
        assert plugin.events == 1 << 3 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 2 | 1 << 13
        await plugin.close()
        with pytest.raises(SessionEnded, match="the container runtime closed the connection"):
            await session


@pytest.mark.parametrize("per_message", [1, 2, 3, 7, 100])
async def test_synchronize_in_pieces_is_told_once_and_whole(
    handler: Recorder, runtime: FakeRuntime, per_message: int
) -> None:
    runtime.pods = [api_pb2.PodSandbox(id=f"p{n}") for n in range(7)]
    runtime.containers = [api_pb2.Container(id=f"c{n}") for n in range(11)]
    runtime.per_message = per_message
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostLooks()).run(runtime.socket))
        plugin = await runtime.plugin()
        word, sandboxes, containers = await handler.next()
        assert word == "synchronized"
        assert [s.id for s in sandboxes] == [f"p{n}" for n in range(7)]
        assert [c.id for c in containers] == [f"c{n}" for n in range(11)]
        assert (await handler.next())[0] == "connected"
        assert handler.told.empty()
        await plugin.close()
        with pytest.raises(SessionEnded):
            await session


async def test_a_second_synchronize_begins_anew(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.per_message = [POD, POD], 1
    async with joined(handler, runtime) as plugin:
        await plugin.synchronize([POD], [], 1)
        assert await handler.next() == ("synchronized", [SANDBOX], [])
        assert handler.told.empty()


async def test_without_devices_nothing_is_changed(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        assert await plugin.create_container(POD, CONTAINER) == api_pb2.ContainerAdjustment()
        assert await handler.next() == ("create", SANDBOX, RUNNING)


async def test_edits_reach_the_runtime(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits(
        {"VISIBLE": "0"},
        (Mount("/in", "/out", True),),
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


async def test_an_answer_longer_than_the_runtimes_buffer(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({f"NAME_{n}": "x" * 100 for n in range(2000)}, (), (), {}, ())
    async with joined(handler, runtime) as plugin:
        adjust = await plugin.create_container(POD, CONTAINER)
    assert {e.key: e.value for e in adjust.env} == handler.edits.envs


async def test_an_answer_that_is_too_long_is_an_error(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({"A": "x" * 5_000_000}, (), (), {}, ())
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match="the most") as caught:
            await plugin.create_container(POD, CONTAINER)
        handler.edits = None
        await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


async def test_a_refusal_fails_the_container_with_its_sentence(handler: Recorder, runtime: FakeRuntime) -> None:
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


async def test_an_answer_that_takes_too_long_is_an_error(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", 0.01)
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match="container main are not ready") as caught:
            await plugin.create_container(POD, CONTAINER)
        # whatever the runtime takes for a lost plugin, it must not be among it
        assert caught.value.code == Code.UNAVAILABLE
        handler.gate.set()
        await plugin.create_container(POD, CONTAINER)


async def test_a_runtime_that_waits_shorter_is_answered_sooner(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.request_timeout_ms = 20
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match=r"after 0\.01 s"):
            await plugin.create_container(POD, CONTAINER)


async def test_one_that_waits_holds_up_no_other_call(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        creation = asyncio.create_task(plugin.create_container(POD, CONTAINER))
        assert (await handler.next())[0] == "create"
        await plugin.about_container("StopContainer", POD, CONTAINER)
        assert not creation.done()
        handler.gate.set()
        await creation


async def test_what_is_waited_for_ends_with_the_connection(handler: Recorder, runtime: FakeRuntime) -> None:
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


@pytest.mark.parametrize(
    ("method", "word"),
    [("PostStartContainer", "started"), ("StopContainer", "ended"), ("RemoveContainer", "ended")],
)
async def test_containers_are_told(handler: Recorder, runtime: FakeRuntime, method: str, word: str) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.about_container(method, POD, CONTAINER)
        assert await handler.next() == (word, SANDBOX, RUNNING)


async def test_a_start_that_is_told_after_the_end_is_none(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.about_container("StopContainer", POD, CONTAINER)
        await plugin.about_container("PostStartContainer", POD, CONTAINER)
        await plugin.about_container("RemoveContainer", POD, CONTAINER)
        assert [(await handler.next())[0] for _ in range(2)] == ["ended", "ended"]
        assert handler.told.empty()


async def test_a_removed_sandbox_is_told(handler: Recorder, runtime: FakeRuntime) -> None:
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
async def test_older_runtimes_tell_by_state_changes(
    handler: Recorder, runtime: FakeRuntime, event: api_pb2.Event.ValueType, word: str
) -> None:
    async with joined(handler, runtime) as plugin:
        await plugin.state_change(event, POD, CONTAINER)
        assert (await handler.next())[:2] == (word, SANDBOX)


async def test_what_was_not_asked_for_is_answered_and_not_told(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        for event in api_pb2.RUN_POD_SANDBOX, api_pb2.STOP_POD_SANDBOX, api_pb2.START_CONTAINER, 99:
            await plugin.state_change(cast("api_pb2.Event.ValueType", event), POD, CONTAINER)
        for method in "RunPodSandbox", "StopPodSandbox":
            assert await plugin.call(method, b"") == b""
        assert handler.told.empty()


@pytest.mark.parametrize(
    ("method", "payload", "code"),
    [
        ("UpdateContainer", b"", Code.UNIMPLEMENTED),
        ("CreateContainer", b"\xff", Code.INVALID_ARGUMENT),
        ("StopContainer", b"\xff", Code.INVALID_ARGUMENT),
        ("Synchronize", b"\x0a\xff", Code.INVALID_ARGUMENT),
    ],
)
async def test_what_makes_no_sense_is_answered_with_an_error(
    handler: Recorder, runtime: FakeRuntime, method: str, payload: bytes, code: Code
) -> None:
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed) as caught:
            await plugin.call(method, payload)
        assert caught.value.code == code
        await plugin.create_container(POD, CONTAINER)


async def test_a_fault_of_ours_is_an_error_and_is_logged(
    handler: Recorder, runtime: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async with joined(handler, runtime) as plugin:
        handler.error = ZeroDivisionError("a fault")
        with pytest.raises(CallFailed) as caught:
            await plugin.create_container(POD, CONTAINER)
        assert caught.value.code == Code.INTERNAL
        with pytest.raises(CallFailed):
            await plugin.about_container("PostStartContainer", POD, CONTAINER)
    assert [record.message for record in caplog.records].count("a call failed on our side") == 2


@pytest.mark.parametrize("version", ["v1.0.0", "2.3.4", "banana", "v10.1.1"])
async def test_an_unknown_version_of_nri_is_refused(handler: Recorder, runtime: FakeRuntime, version: str) -> None:
    runtime.nri_version = version
    async with runtime:
        with pytest.raises(SessionEnded, match=f"NRI {version}.*update the agent"):
            await Session(handler, "10", HostLooks()).run(runtime.socket)
        assert (await runtime.failed.get()).code == Code.FAILED_PRECONDITION
    assert handler.told.empty()


@pytest.mark.parametrize("version", ["", "unknown", "(devel)", "0.0.0-unknown", "v0.3.0", "0.13.0-rc1"])
async def test_other_versions_are_taken(handler: Recorder, runtime: FakeRuntime, version: str) -> None:
    runtime.nri_version = version
    async with joined(handler, runtime):
        pass


@pytest.mark.parametrize(
    ("version", "known_events"), [("v2.2.0", (1 << 14) - 1), ("v2.1.4", (1 << 13) - 1), ("v2.0.5", (1 << 13) - 1)]
)
async def test_nothing_is_asked_for_that_the_runtime_has_never_heard_of(
    handler: Recorder, runtime: FakeRuntime, version: str, known_events: int
) -> None:
    """It would end the connection."""
    runtime.version, runtime.known_events = version, known_events
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostLooks()).run(runtime.socket))
        taken_in = asyncio.create_task(runtime.plugin())
        await asyncio.wait([session, taken_in], return_when=asyncio.FIRST_COMPLETED)
        assert not session.done()
        assert (await taken_in).events & 1 << 3
        assert (await handler.next())[0] == "synchronized"
        has_validators = known_events & 1 << 13
        validator = Validator.NOT_SEEN if has_validators else Validator.MISSING
        assert await handler.next() == ("connected", "containerd", version, validator)
    with pytest.raises(SessionEnded):
        await session


async def test_one_that_is_sent_away_after_all_was_never_connected(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.sends_away = True
    reason = await ended(handler, runtime)
    assert reason == "the container runtime closed the connection before it had told what it runs; its log says why"
    assert handler.told.empty()


async def test_each_validation_tells_of_the_runtimes_own(handler: Recorder, runtime: FakeRuntime) -> None:
    async with joined(handler, runtime) as plugin:
        for runtime.validator in True, False, True:
            await plugin.validate(POD, CONTAINER)
    assert handler.validators == [Validator.ON, Validator.OFF, Validator.ON]


async def test_a_runtime_that_refuses_us(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.refusal = "invalid plugin index"
    assert (
        await ended(handler, runtime)
        == "the container runtime did not register the plugin 10-nodedevice: invalid plugin index"
    )


async def test_a_runtime_that_never_synchronizes(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SYNCHRONIZE_SECONDS", 0.01)
    runtime.configures = False
    assert "did not synchronize" in await ended(handler, runtime)


async def test_shutdown_ends_the_session_after_its_answer(handler: Recorder, runtime: FakeRuntime) -> None:
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostLooks()).run(runtime.socket))
        plugin = await runtime.plugin()
        assert await plugin.call("Shutdown", b"") == b""
        with pytest.raises(SessionEnded, match="shuts its plugins down"):
            await session


async def test_more_than_can_be_kept_ends_the_session(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_MAX_SYNCHRONIZE_BYTES", 100)
    runtime.pods, runtime.per_message = [POD] * 10, 1
    assert "more than 100 bytes" in await ended(handler, runtime)
    assert (await runtime.failed.get()).code == Code.RESOURCE_EXHAUSTED
    assert handler.told.empty()
