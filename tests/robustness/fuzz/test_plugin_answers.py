"""A device plugin that answers with any bytes: PluginFailed or a value, and the agent and all other plugins go on."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

import grpc
import grpc.aio
import pytest
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.devices import ListedDevices
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.plugin_watcher import get_info, notify, registration_client
from nodedevice_agent.errors import PluginFailed

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.robustness.fuzz.budget import Fuzzer
from tests.robustness.fuzz.inputs import nearly
from tests.robustness.fuzz.published import status_of
from tests.robustness.fuzz.raw_plugin import (
    GOOD_ALLOCATION,
    GOOD_INFO,
    GOOD_LIST,
    GOOD_OPTIONS,
    GOOD_PREFERENCE,
    GOOD_REGISTRATION,
    RawPlugin,
    register,
)

RAW = "example.com/raw"
Check = Callable[[PluginConnection], Awaitable[object]]


@pytest.fixture
def plugin(tmp_path: Path, runner: asyncio.Runner) -> Iterator[RawPlugin]:
    made = RawPlugin(tmp_path / "raw.sock")
    runner.run(made.start())
    yield made
    runner.run(made.stop())


async def with_connection(plugin: RawPlugin, check: Check) -> None:
    """Dial it, call it, and take PluginFailed for an answer; nothing else."""
    try:
        async with aclosing(await PluginConnection.open(RAW, plugin.socket)) as connection:
            await check(connection)
    except PluginFailed as failed:
        # pytest.raises would want every input to fail
        _is_printable(str(failed))


def _is_printable(text: str) -> None:
    assert text.isprintable(), text
    assert len(text) < 1000, text


async def first_lists(connection: PluginConnection) -> None:
    async for listed in connection.device_lists():
        assert isinstance(listed, ListedDevices)
        _is_printable(listed.id_error)


async def ask_preferred(connection: PluginConnection) -> None:
    for device_id in await connection.preferred(("dev-0", "dev-1"), (), 1):
        assert isinstance(device_id, str)


async def allocate(connection: PluginConnection) -> None:
    assert isinstance(await connection.allocate(("dev-0",)), AllocateResponse)


async def pre_start(connection: PluginConnection) -> None:
    await connection.pre_start(("dev-0",))


async def nothing(connection: PluginConnection) -> None:
    assert connection.options is not None


@pytest.mark.parametrize(
    ("method", "good", "check"),
    [
        pytest.param("GetDevicePluginOptions", GOOD_OPTIONS, nothing, id="options"),
        pytest.param("ListAndWatch", GOOD_LIST, first_lists, id="device list"),
        pytest.param("GetPreferredAllocation", GOOD_PREFERENCE, ask_preferred, id="preferred allocation"),
        pytest.param("Allocate", GOOD_ALLOCATION, allocate, id="allocate"),
        pytest.param("PreStartContainer", b"", pre_start, id="pre-start"),
    ],
)
def test_any_answer(
    fuzz: Fuzzer, plugin: RawPlugin, runner: asyncio.Runner, method: str, good: bytes, check: Check
) -> None:
    def one(answer: bytes) -> None:
        plugin.answers[method] = [answer]
        runner.run(with_connection(plugin, check))

    fuzz(one, nearly([good]))


def test_any_announcement(fuzz: Fuzzer, plugin: RawPlugin, runner: asyncio.Runner) -> None:
    """Of a plugin in the plugins registry directory: what it says it is, and how it takes the answer."""

    async def one(info: bytes, reply: bytes) -> None:
        plugin.answers |= {"GetInfo": [info], "NotifyRegistrationStatus": [reply]}
        async with registration_client(plugin.socket) as client:
            try:
                assert await get_info(client, plugin.socket) is not None
            except PluginFailed as failed:
                _is_printable(str(failed))
            await notify(client, plugin.socket, "no")

    fuzz(lambda value: runner.run(one(*value)), st.tuples(nearly([GOOD_INFO]), nearly([b""])))


class Surroundings:
    """A hosted manager with a good plugin, and the raw one in the same directory."""

    def __init__(self, manager: HostedManager) -> None:
        self.manager = manager
        self.raw = RawPlugin(manager.plugin_dir / "raw.sock")
        self.good = FakePlugin("example.com/good", {"g-0": FakeDevice()})
        self._number = 0

    async def start(self) -> None:
        await self.raw.start()
        await self.good.join(self.manager.plugin_dir)
        await self._good_has(1)

    async def stop(self) -> None:
        await self.good.stop()
        await self.raw.stop()

    async def suffer(self, answers: dict[str, list[bytes]]) -> None:
        """The raw plugin registers and answers; a pod wants of both; then it is gone and all is as before."""
        self.raw.reset()
        self.raw.answers |= answers
        self._number += 1
        await _register(self.manager.plugin_dir, GOOD_REGISTRATION)
        self.manager.pods(self._pod("raw", RAW), self._pod("good", "example.com/good"))
        await self._good_has(0)
        for resource_name in self.manager.manager.resources:
            status_of(self.manager.manager, resource_name)
        self.manager.pods()
        await self._good_has(1)
        self.manager.published.clear()
        self.good.calls.clear()

    async def _good_has(self, available: int) -> None:
        await self.manager.until(lambda: self.manager.available("example.com/good") == available)

    def _pod(self, kind: str, resource_name: str) -> Pod:
        uid = f"{kind}-{self._number}"
        return Pod(uid, "default", uid, (Container("main", limits={resource_name: 1}),))


async def _register(directory: Path, request: bytes) -> None:
    """Refused or not."""
    try:
        await register(directory, request)
    except grpc.aio.AioRpcError as refused:
        _is_understandable(refused)


def _is_understandable(refused: grpc.aio.AioRpcError) -> None:
    # UNKNOWN is what grpc answers for a handler that raised
    assert refused.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION), refused
    _is_printable(refused.details() or "")


@pytest.fixture
def surroundings(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Surroundings]:
    manager_in = hosted(tmp_path)
    made = Surroundings(runner.run(manager_in.__aenter__()))
    runner.run(made.start())
    yield made
    runner.run(made.stop())
    runner.run(manager_in.__aexit__(None, None, None))


def test_any_answers_to_an_agent_that_serves_others(
    fuzz: Fuzzer, surroundings: Surroundings, runner: asyncio.Runner
) -> None:
    answers = st.fixed_dictionaries(
        {},
        optional={
            "GetDevicePluginOptions": nearly([GOOD_OPTIONS]).map(lambda answer: [answer]),
            "ListAndWatch": st.lists(st.one_of(st.just(GOOD_LIST), nearly([GOOD_LIST])), max_size=4),
            "GetPreferredAllocation": nearly([GOOD_PREFERENCE]).map(lambda answer: [answer]),
            "Allocate": nearly([GOOD_ALLOCATION]).map(lambda answer: [answer]),
        },
    )
    fuzz(lambda value: runner.run(surroundings.suffer(value)), answers)


def test_any_registration(fuzz: Fuzzer, surroundings: Surroundings, runner: asyncio.Runner) -> None:
    async def one(request: bytes) -> None:
        await _register(surroundings.manager.plugin_dir, request)
        await surroundings.suffer({})

    fuzz(lambda request: runner.run(one(request)), nearly([GOOD_REGISTRATION]))
