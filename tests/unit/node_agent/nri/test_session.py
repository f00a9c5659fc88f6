"""The agent as an NRI plugin of a fake runtime: registered, synchronized, refused, and rejected; the response to the creation of a
container, within the timeout; events of pods and containers, each handled once.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import NoReturn, cast

import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import (
    ContainerState,
    CreationSettings,
    DeviceOwner,
    InjectionRefused,
    RunningContainer,
    RuntimeDevice,
    Sandbox,
    Validator,
)
from nodedevice_agent.nri import session as session_module
from nodedevice_agent.nri.host_devices import HostDevice, HostDevices, HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder
from tests.fakes.virtual_time import virtual_time

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
    (RuntimeDevice("/dev/null", "c", 1, 3),),
    {"c": "d"},
)


@asynccontextmanager
async def registered(handler: Recorder, runtime: FakeRuntime, index: str = "10") -> AsyncIterator[PluginConnection]:
    """The runtime's side of a session."""
    async with runtime:
        session = asyncio.create_task(Session(handler, index, HostDeviceStat()).run(runtime.socket))
        plugin = await runtime.plugin()
        yield plugin
        assert not session.done()
        await plugin.close()
        with pytest.raises(SessionEnded, match="the container runtime closed the connection"):
            await session


@asynccontextmanager
async def joined(handler: Recorder, runtime: FakeRuntime) -> AsyncIterator[PluginConnection]:
    """The runtime's side of a session whose first two events have been handled."""
    async with registered(handler, runtime) as plugin:
        assert (await handler.next())[0] == "synchronized"
        assert (await handler.next())[0] == "connected"
        yield plugin


@pytest.fixture
async def plugin(handler: Recorder, runtime: FakeRuntime) -> AsyncIterator[PluginConnection]:
    """Joined to a runtime that is as it comes."""
    async with joined(handler, runtime) as plugin:
        yield plugin


async def test_registers_and_synchronizes(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.containers = [POD], [CONTAINER]
    async with registered(handler, runtime, "07") as plugin:
        assert (plugin.registered.plugin_name, plugin.registered.plugin_idx) == ("nodedevice", "07")
        assert await handler.next() == ("synchronized", [SANDBOX], [RUNNING])
        assert await handler.next() == ("connected", "containerd", "v2.4.2", Validator.NOT_SEEN)
        # CreateContainer, PostStart-, Stop- and RemoveContainer, RemovePodSandbox, ValidateContainerAdjustment: bit n - 1 each
        assert plugin.events == 1 << 3 | 1 << 6 | 1 << 9 | 1 << 10 | 1 << 2 | 1 << 13


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
        has_validators = known_events & 1 << 13
        validator = Validator.NOT_SEEN if has_validators else Validator.MISSING
        assert await handler.next() == ("connected", "containerd", version, validator)


@pytest.mark.parametrize(
    ("rejects", "refusal", "reason"),
    [
        (True, "", "closed the connection before it sent its containers; its log has the reason"),
        (False, "invalid plugin index", "did not register the plugin 10-nodedevice: invalid plugin index"),
    ],
    ids=["rejected", "not registered"],
)
async def test_a_refused_plugin_was_never_connected(
    handler: Recorder, runtime: FakeRuntime, rejects: bool, refusal: str, reason: str
) -> None:
    runtime.rejects, runtime.refusal = rejects, refusal
    assert await ended(handler, runtime) == f"the container runtime {reason}"
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


async def test_a_synchronize_that_is_too_big_ends_the_session(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_MAX_SYNCHRONIZE_BYTES", 100)
    runtime.pods, runtime.per_message = [POD] * 10, 1
    assert "exceeds 100 bytes" in await ended(handler, runtime)
    assert (await runtime.failed.get()).code == Code.RESOURCE_EXHAUSTED
    assert handler.calls.empty()


async def ended(handler: Recorder, runtime: FakeRuntime) -> str:
    """Why a session that is not held up from here ends."""
    async with runtime:
        with pytest.raises(SessionEnded) as caught:
            await Session(handler, "10", HostDeviceStat()).run(runtime.socket)
    return str(caught.value)


# -- containers are created --------------------------------------------------------------------------------------------


async def test_without_devices_nothing_is_changed(handler: Recorder, plugin: PluginConnection) -> None:
    assert await plugin.create_container(POD, CONTAINER) == api_pb2.ContainerAdjustment()
    assert await handler.next() == ("create", SANDBOX, RUNNING)


async def test_edits_reach_the_runtime(handler: Recorder, plugin: PluginConnection) -> None:
    handler.edits = ContainerEdits(
        {"VISIBLE": "0"},
        (ContainerMount("/in", "/out", True),),
        (DeviceFile("/dev/a", "/dev/null", "rw"),),
        {"k": "v"},
        ("a/b=c",),
    )
    adjust = await plugin.create_container(POD, CONTAINER)
    assert [(e.key, e.value) for e in adjust.env] == [("VISIBLE", "0")]
    assert [(m.source, m.destination) for m in adjust.mounts] == [("/out", "/in")]
    assert [(d.path, d.type, d.major, d.minor) for d in adjust.linux.devices] == [("/dev/a", "c", 1, 3)]
    assert dict(adjust.annotations) == {"k": "v"}
    assert [d.name for d in adjust.CDI_devices] == ["a/b=c"]


async def test_a_response_longer_than_the_runtimes_buffer(handler: Recorder, plugin: PluginConnection) -> None:
    handler.edits = ContainerEdits({f"NAME_{n}": "x" * 100 for n in range(2000)})
    adjust = await plugin.create_container(POD, CONTAINER)
    assert {e.key: e.value for e in adjust.env} == handler.edits.envs


async def test_a_response_that_is_too_long_is_an_error(handler: Recorder, plugin: PluginConnection) -> None:
    handler.edits = ContainerEdits({"A": "x" * 5_000_000})
    with pytest.raises(CallFailed, match="exceeds the limit") as caught:
        await plugin.create_container(POD, CONTAINER)
    handler.edits = None
    await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.FAILED_PRECONDITION


async def test_a_refusal_fails_the_container_with_its_message(handler: Recorder, plugin: PluginConnection) -> None:
    handler.refusal = "no example.com/gpu for container main; wait"
    with pytest.raises(CallFailed, match=re.escape(handler.refusal)) as caught:
        await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.FAILED_PRECONDITION
    assert await plugin.validate(POD, CONTAINER) == handler.refusal
    handler.refusal = ""
    assert await plugin.validate(POD, CONTAINER) == ""


async def test_a_missing_device_file_is_named(handler: Recorder, plugin: PluginConnection) -> None:
    handler.edits = ContainerEdits(devices=(DeviceFile("/dev/a", "/dev/nodedevice-none", "rw"),))
    with pytest.raises(CallFailed, match="/dev/nodedevice-none"):
        await plugin.create_container(POD, CONTAINER)


class Hangs(HostDeviceStat):
    """The file system of /dev does not respond."""

    async def stat_devices(self, host_paths: Iterable[str]) -> HostDevices:
        await asyncio.Event().wait()
        return {}


FUSE = DeviceFile("/dev/a", "/dev/null", "rw")
LATE = {
    "no such file": ContainerEdits(devices=(DeviceFile("/dev/a", "/dev/nodedevice-none", "rw"),)),
    "given to another": ContainerEdits(devices=(FUSE,)),
    "an invalid edit": ContainerEdits({"-PATH": "x"}),
    "not to be encoded": ContainerEdits({"A": "\udc80"}),
    "too long": ContainerEdits({"A": "x" * 5_000_000}),
    "no CDI": ContainerEdits(cdi_devices=("vendor.com/gpu=0",)),
    "a timeout": ContainerEdits(devices=(FUSE,)),
    "the end of the connection": ContainerEdits(devices=(FUSE,)),
}


@virtual_time
@pytest.mark.parametrize("case", LATE)
async def test_whatever_fails_after_the_handler_gave_its_edits_is_known_to_it(
    handler: Recorder, runtime: FakeRuntime, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRI-O reports no end of a container whose creation a plugin refused."""
    handler.edits = LATE[case]
    if case == "given to another":
        monkeypatch.setattr(handler, "check_files", refuse)
    if case == "no CDI":
        runtime.version = "1.7.27"
    if case in ("a timeout", "the end of the connection"):
        monkeypatch.setattr(f"{__name__}.HostDeviceStat", Hangs)
    async with joined(handler, runtime) as plugin:
        creation = asyncio.create_task(plugin.create_container(POD, CONTAINER))
        assert (await handler.next())[0] == "create"
        if case != "the end of the connection":
            await asyncio.wait([creation])
    with pytest.raises(CallFailed):
        await creation
    while (found := await handler.next())[0] == "files":
        pass
    assert found == ("refused", SANDBOX, RUNNING)
    assert handler.calls.empty()


def refuse(*_: object) -> NoReturn:
    raise InjectionRefused("another pod holds it")


async def test_what_the_handler_itself_refuses_was_never_begun(handler: Recorder, plugin: PluginConnection) -> None:
    handler.refusal = "wait"
    with pytest.raises(CallFailed):
        await plugin.create_container(POD, CONTAINER)
    assert (await handler.next())[0] == "create"
    assert handler.calls.empty()


@pytest.mark.parametrize(("name", "mode"), [("containerd", 0o666), ("cri-o", None)])
async def test_owner_and_mode_of_a_device_file(
    handler: Recorder, runtime: FakeRuntime, name: str, mode: int | None
) -> None:
    """CRI-O leaves a file of the kubelet's to everybody, whatever mode the host's has."""
    runtime.name, runtime.version = name, "2.4.2"
    handler.edits = ContainerEdits(devices=(FUSE,))
    handler.settings = CreationSettings(DeviceOwner(1000, 2000))
    async with joined(handler, runtime) as plugin:
        (device,) = (await plugin.create_container(POD, CONTAINER)).linux.devices
    assert (device.uid.value, device.gid.value) == (1000, 2000)
    assert (device.file_mode.value if device.HasField("file_mode") else None) == mode


async def test_a_device_file_that_the_containers_user_cannot_open_is_logged_once(
    handler: Recorder, plugin: PluginConnection, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stat_devices(_: object, host_paths: Iterable[str]) -> HostDevices:
        return {path: (HostDevice("", "c", 1, 3, 0o660, 0, 20),) for path in host_paths}

    monkeypatch.setattr(HostDeviceStat, "stat_devices", stat_devices)
    handler.edits = ContainerEdits(devices=(FUSE,))
    for user in (0, 1000, 1000):
        await plugin.create_container(POD, api_pb2.Container(id="c", name="main", user=api_pb2.User(uid=user)))
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert record.getMessage() == "user of a container cannot open its device file"
    assert (record.__dict__["path"], record.__dict__["pod"]) == ("/dev/a", "team-a/trainer")


WITH_REFERENCES = api_pb2.Container(
    id="c", name="main", args=["/bin/app", "--device=$(DEVICE)", "$(OTHER)", "$(SECOND)"]
)


@pytest.mark.parametrize(
    ("references", "args"),
    [
        (frozenset[str](), []),
        (frozenset({"DEVICE", "OTHER"}), ["/bin/app", "--device=/dev/x", "$(OTHER)", "$(SECOND)"]),
        (None, ["/bin/app", "--device=/dev/x", "$(OTHER)", "2"]),
    ],
    ids=["none", "some", "not known"],
)
@pytest.mark.parametrize("version", ["v2.4.2", "v2.1.4"])
async def test_variables_of_the_plugin_in_the_command(
    handler: Recorder, runtime: FakeRuntime, version: str, references: frozenset[str] | None, args: list[str]
) -> None:
    """The kubelet expands them; an older NRI cannot."""
    runtime.version = version
    handler.edits = ContainerEdits({"SECOND": "2", "DEVICE": "/dev/x"})
    handler.settings = CreationSettings(references=references)
    async with joined(handler, runtime) as plugin:
        if args and version == "v2.1.4":
            words = r"command of container main has \$\(DEVICE\), .*containerd v2\.1\.4.*update it to 2\.2"
            with pytest.raises(CallFailed, match=words):
                await plugin.create_container(POD, WITH_REFERENCES)
        else:
            assert list((await plugin.create_container(POD, WITH_REFERENCES)).args) == args


async def test_cdi_that_the_runtime_would_drop_is_refused(handler: Recorder, runtime: FakeRuntime) -> None:
    handler.edits = ContainerEdits({}, (), (), {}, ("vendor.com/gpu=0",))
    runtime.version = "1.7.27"
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match=r"vendor.com/gpu=0 .*containerd 1.7.27"):
            await plugin.create_container(POD, CONTAINER)


@virtual_time
@pytest.mark.parametrize(
    ("ours_seconds", "runtimes_ms"),
    [pytest.param(0.01, 2000, id="ours"), pytest.param(1.0, 20, id="that of a runtime with a shorter one")],
)
async def test_a_timeout_is_an_error(
    handler: Recorder, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch, ours_seconds: float, runtimes_ms: int
) -> None:
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", ours_seconds)
    runtime.request_timeout_ms = runtimes_ms
    handler.gate = asyncio.Event()
    async with joined(handler, runtime) as plugin:
        with pytest.raises(CallFailed, match=r"container main are not ready.* after 0\.01 s") as caught:
            await plugin.create_container(POD, CONTAINER)
        # it must not be an error that the runtime takes for a lost plugin
        assert caught.value.code == Code.UNAVAILABLE
        handler.gate.set()
        await plugin.create_container(POD, CONTAINER)


async def test_a_pending_call_delays_no_other(handler: Recorder, plugin: PluginConnection) -> None:
    handler.gate = asyncio.Event()
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
    handler: Recorder, runtime: FakeRuntime, plugin: PluginConnection
) -> None:
    for runtime.validator in True, False, True:
        await plugin.validate(POD, CONTAINER)
    assert handler.validators == [Validator.ON, Validator.OFF, Validator.ON]


# -- events of pods and containers -------------------------------------------------------------------------------------


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
async def test_an_invalid_request_is_an_error(
    plugin: PluginConnection, method: str, payload: bytes, code: Code
) -> None:
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
