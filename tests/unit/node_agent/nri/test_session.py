"""The agent as an NRI plugin of a fake runtime: registered, synchronized, refused, and rejected; features of releases."""

import asyncio

import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused, Validator
from nodedevice_agent.nri import session as session_module
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded, check_cdi, has_validators
from nodedevice_agent.nri.ttrpc import Code
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.runtime_handler import Recorder
from tests.unit.node_agent.nri.joined import CONTAINER, POD, RUNNING, SANDBOX, joined

PLAIN = ContainerEdits({"A": "b"}, (), (), {}, ())
BY_CDI = ContainerEdits({}, (), (), {}, ("vendor.com/gpu=0",))


async def test_registers_and_synchronizes(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.containers = [POD], [CONTAINER]
    async with runtime:
        session = asyncio.create_task(Session(handler, "07", HostDeviceStat()).run(runtime.socket))
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
async def test_a_split_synchronize_is_one_event(handler: Recorder, runtime: FakeRuntime, per_message: int) -> None:
    runtime.pods = [api_pb2.PodSandbox(id=f"p{n}") for n in range(7)]
    runtime.containers = [api_pb2.Container(id=f"c{n}") for n in range(11)]
    runtime.per_message = per_message
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostDeviceStat()).run(runtime.socket))
        plugin = await runtime.plugin()
        word, sandboxes, containers = await handler.next()
        assert word == "synchronized"
        assert [s.id for s in sandboxes] == [f"p{n}" for n in range(7)]
        assert [c.id for c in containers] == [f"c{n}" for n in range(11)]
        assert (await handler.next())[0] == "connected"
        assert handler.calls.empty()
        await plugin.close()
        with pytest.raises(SessionEnded):
            await session


async def test_a_second_synchronize_replaces_the_first(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.pods, runtime.per_message = [POD, POD], 1
    async with joined(handler, runtime) as plugin:
        await plugin.synchronize([POD], [], 1)
        assert await handler.next() == ("synchronized", [SANDBOX], [])
        assert handler.calls.empty()


@pytest.mark.parametrize("version", ["v1.0.0", "2.3.4", "banana", "v10.1.1"])
async def test_an_unknown_version_of_nri_is_refused(handler: Recorder, runtime: FakeRuntime, version: str) -> None:
    runtime.nri_version = version
    async with runtime:
        with pytest.raises(SessionEnded, match=f"NRI {version}.*update the agent"):
            await Session(handler, "10", HostDeviceStat()).run(runtime.socket)
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
    async with runtime:
        session = asyncio.create_task(Session(handler, "10", HostDeviceStat()).run(runtime.socket))
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


async def test_a_rejected_plugin_was_never_connected(handler: Recorder, runtime: FakeRuntime) -> None:
    runtime.rejects = True
    reason = await ended(handler, runtime)
    assert reason == "the container runtime closed the connection before it sent its containers; its log has the reason"
    assert handler.calls.empty()


async def test_a_runtime_that_refuses_the_registration(handler: Recorder, runtime: FakeRuntime) -> None:
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


@pytest.mark.parametrize(
    ("name", "version", "cdi", "validators"),
    [
        ("containerd", "v2.4.2", True, True),
        ("containerd", "2.2.0-rc.0", True, True),
        ("containerd", "2.1.0-beta.1+unknown", True, False),
        ("containerd", "v2.1.4", True, False),
        ("containerd", "v2.0.7", False, False),
        ("containerd", "1.7.30", False, False),
        ("cri-o", "1.35.0", True, True),
        ("cri-o", "1.34.0", True, None),
        ("cri-o", "1.33.9", False, False),
        ("CRI-O", "v1.9.9", False, False),
        ("containerd", "from a branch", True, None),
        ("containerd", "", True, None),
        ("another", "0.1", True, None),
    ],
)
def test_releases(name: str, version: str, cdi: bool, validators: bool | None) -> None:
    assert has_validators(name, version) is validators
    check_cdi(PLAIN, name, version)
    if cdi:
        check_cdi(BY_CDI, name, version)
        return
    with pytest.raises(InjectionRefused, match=r"vendor\.com/gpu=0 .* update it"):
        check_cdi(BY_CDI, name, version)
