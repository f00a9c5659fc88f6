"""A container is created: what the runtime is answered within its timeout, and what refuses the container."""

import asyncio
import re
from collections.abc import Iterable
from typing import NoReturn

import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import (
    CreationSettings,
    DeviceOwner,
    InjectionRefused,
    RuntimeDevice,
    Validator,
)
from nodedevice_agent.nri import session as session_module
from nodedevice_agent.nri.host_devices import HostDevice, HostDevices, HostDeviceStat
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.nri import runtime_side
from tests.unit.node_agent.nri.runtime_side import CONTAINER, CREATED, DECIDING, POD, joined

FUSE = DeviceFile("/dev/a", "/dev/null", "rw")
WITH_REFERENCES = api_pb2.Container(id="c", name="main", args=["app", "--device=$(DEVICE)", "$(OTHER)", "$(SECOND)"])


async def test_without_devices_nothing_is_changed(handler: Recorder, plugin: PluginConnection) -> None:
    assert await plugin.create_container(POD, CONTAINER) == api_pb2.ContainerAdjustment()
    assert await handler.next() == ("create", DECIDING, CREATED)


async def test_edits_reach_the_runtime(handler: Recorder, plugin: PluginConnection) -> None:
    mounts = (ContainerMount("/in", "/out", True), ContainerMount("/data", "/srv", False))
    cdi_devices = ("a/b=c", "a/b=d", "a/b=c")
    handler.edits = ContainerEdits({"VISIBLE": "0", "A": "1=1"}, mounts, (FUSE,), {"k": "v"}, cdi_devices)
    adjust = await plugin.create_container(POD, CONTAINER)
    assert [(d.path, d.type, d.major, d.minor) for d in adjust.linux.devices] == [("/dev/a", "c", 1, 3)]
    adjust.ClearField("linux")
    bind = ["rbind", "rprivate"]
    assert adjust == api_pb2.ContainerAdjustment(
        env=[api_pb2.KeyValue(key="A", value="1=1"), api_pb2.KeyValue(key="VISIBLE", value="0")],
        mounts=[
            api_pb2.Mount(destination="/in", source="/out", type="bind", options=[*bind, "ro"]),
            api_pb2.Mount(destination="/data", source="/srv", type="bind", options=[*bind, "rw"]),
        ],
        annotations={"k": "v"},
        CDI_devices=[api_pb2.CDIDevice(name="a/b=c"), api_pb2.CDIDevice(name="a/b=d")],
    )
    assert await handler.next() == ("create", DECIDING, CREATED)
    # before any of it: whose files they are by now
    assert await handler.next() == ("files", "main", {"c1:3"})
    # from now on they count as the container's
    assert await handler.next() == ("adjusted", "container-1", (*CREATED.devices, RuntimeDevice("/dev/a", "c", 1, 3)))


async def test_a_handler_is_passed_the_variables_that_it_reads(
    handler: Recorder, plugin: PluginConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the runtime's order."""
    monkeypatch.setattr(handler, "reads_variable", lambda entry: entry.startswith("READ"))
    env = [f"{name}{number}=x" for number in range(5) for name in ("READ", "OTHER")]
    await plugin.create_container(POD, api_pb2.Container(id="c", env=env))
    assert (await handler.next())[2].env == tuple(f"READ{number}=x" for number in range(5))


async def test_a_response_longer_than_the_runtimes_buffer(handler: Recorder, plugin: PluginConnection) -> None:
    handler.edits = ContainerEdits({f"NAME_{n}": "x" * 100 for n in range(2000)})
    assert {e.key: e.value for e in (await plugin.create_container(POD, CONTAINER)).env} == handler.edits.envs


async def test_a_refusal_fails_the_container_with_its_message(handler: Recorder, plugin: PluginConnection) -> None:
    handler.refusal = "no example.com/gpu for container main; wait"
    with pytest.raises(CallFailed, match=re.escape(handler.refusal)) as caught:
        await plugin.create_container(POD, CONTAINER)
    assert caught.value.code == Code.FAILED_PRECONDITION
    assert (await handler.next())[0] == "create"
    assert handler.calls.empty(), "the handler knows what it has refused"
    assert await plugin.validate(POD, CONTAINER) == handler.refusal
    handler.refusal = ""
    assert await plugin.validate(POD, CONTAINER) == ""


class Hangs(HostDeviceStat):
    """The file system of /dev does not respond."""

    async def stat_devices(self, host_paths: Iterable[str]) -> HostDevices:
        await asyncio.Event().wait()
        return {}


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
        monkeypatch.setattr(runtime_side, "HostDeviceStat", Hangs)
    async with joined(handler, runtime) as plugin:
        creation = asyncio.create_task(plugin.create_container(POD, CONTAINER))
        assert (await handler.next())[0] == "create"
        if case != "the end of the connection":
            await asyncio.wait([creation])
    with pytest.raises(CallFailed) as caught:
        await creation
    if case == "too long":
        assert (caught.value.code, "exceeds the limit" in str(caught.value)) == (Code.FAILED_PRECONDITION, True)
    while (found := await handler.next())[0] == "files":
        pass
    assert found == ("refused", DECIDING, CREATED)
    assert handler.calls.empty()


def refuse(*_: object) -> NoReturn:
    raise InjectionRefused("another pod holds it")


@pytest.mark.parametrize(("name", "mode"), [("containerd", 0o666), ("cri-o", None)])
async def test_owner_and_mode_of_a_file(handler: Recorder, runtime: FakeRuntime, name: str, mode: int | None) -> None:
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
    assert "supplementalGroups: [20]" in record.__dict__["remedy"]


@pytest.mark.parametrize(
    ("references", "args"),
    [
        (frozenset[str](), []),
        (frozenset({"DEVICE", "OTHER"}), ["app", "--device=/dev/x", "$(OTHER)", "$(SECOND)"]),
        (None, ["app", "--device=/dev/x", "$(OTHER)", "2"]),
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


async def test_validations_show_the_validator(
    handler: Recorder, runtime: FakeRuntime, plugin: PluginConnection
) -> None:
    for runtime.validator in True, False, True:
        await plugin.validate(POD, CONTAINER)
    assert handler.validators == [Validator.ON, Validator.OFF, Validator.ON]
