"""Each resource has a socket for the kubelet for as long as it is advertised, and the reader is there for all of them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet import backend
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.proxy_service import ProxyService
from nodedevice_agent.lib.deviceplugin_server import registered_socket
from nodedevice_agent.lib.deviceplugin_server.registered_socket import RegistrationState
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.nvml.settings import GPU_SCOPE
from nodedevice_api.names import Reason
from nodedevice_common import tasks

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.fakes.settled import attributing, host_of
from tests.fakes.virtual_time import later, virtual_time

GPU, NIC = "example.com/gpu", "example.com/nic"


@dataclass
class Socket:
    """Registered until it is cancelled, or as `problem` says."""

    resource_name: str
    endpoint: str
    plugin_dir: Path
    watcher: FileWatcher
    make_service: Callable[[], ProxyService]
    report: Callable[[RegistrationState, str], None]
    problem: Exception | None = None
    is_open: bool = field(default=False, init=False)

    async def run(self) -> None:
        if self.problem is not None:
            raise self.problem
        self.is_open = True
        try:
            self.report(RegistrationState.REGISTERED, "")
            await asyncio.Event().wait()
        finally:
            self.is_open = False


class Node:
    """sockets: all that were made, in order. problem: of those that are made from now on. conditions: as they were reported."""

    def __init__(self, kubelet: KubeletAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kubelet = kubelet
        self.mirror = attributing(0.0)
        self.host = cast(PluginHost, host_of(self.mirror))
        self.conditions: list[str] = []
        self.sockets: list[Socket] = []
        self.problem: Exception | None = None
        self.reader = kubelet.reader(self.mirror.pods)
        self.backend = KubeletBackend(self.host, self.reader, self.conditions.append, 1.0)
        monkeypatch.setattr(registered_socket, "RegisteredSocket", self._socket)

    def _socket(self, *args: object, **named: object) -> Socket:
        made = Socket(*args, **named)  # type: ignore[arg-type]
        made.problem = self.problem
        self.sockets.append(made)
        return made

    @property
    def open(self) -> list[str]:
        return [socket.resource_name for socket in self.sockets if socket.is_open]

    def plugin(self, name: str = GPU, endpoint: int = 1, options: PluginOptions | None = None) -> None:
        self.mirror.connected(name, endpoint, options or PluginOptions(), 0.0)
        self.mirror.listed(name, endpoint, accept([Device("a")]), 0.0)
        self.mirror.table.cordoned(name, "object", {}, 0.0)

    def injectable(self, name: str = GPU) -> tuple[str, str, str]:
        return self.backend.injectable(snapshot(self.mirror, name))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            await self.backend.start(group)


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    read_at_once(monkeypatch)
    return Node(KubeletAnswers(tmp_path, monkeypatch), monkeypatch)


@pytest.fixture
async def node(stopped: Node) -> AsyncIterator[Node]:
    """Started, with a plugin of GPUs."""
    stopped.plugin()
    async with background(stopped.run()):
        await later(0.1)
        stopped.backend.resource_changed(GPU)
        await later(0.1)
        yield stopped


@virtual_time
async def test_a_state_that_cannot_be_taken_ends_no_start(stopped: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stopped.reader, "read", fails)
    async with background(stopped.run()):
        await asyncio.sleep(0.1)
        assert any("kubelet state" in problem for problem in tasks.problems())
    monkeypatch.undo()
    await stopped.reader.read()


@virtual_time
async def test_each_resource_has_one_socket_however_often_it_changes(node: Node) -> None:
    node.plugin(NIC)
    for name in (NIC, GPU, NIC):
        node.backend.resource_changed(name)
        await asyncio.sleep(1.0)
    assert [socket.resource_name for socket in node.sockets] == [GPU, NIC]
    assert node.open == [GPU, NIC]


@pytest.mark.parametrize("state", [RegistrationState.NO_MANAGER, RegistrationState.NO_DIRECTORY])
@virtual_time
async def test_a_kubelet_that_is_away_counts_after_the_grace_period(node: Node, state: RegistrationState) -> None:
    report = node.sockets[0].report
    for _ in range(2):
        # back in time, it was never away
        report(state, "there is no kubelet.sock")
        await asyncio.sleep(0.9)
        report(RegistrationState.REGISTERED, "")
        await asyncio.sleep(0.9)
    assert node.conditions == [GPU]
    report(state, "there is no kubelet.sock")
    await asyncio.sleep(0.9)
    assert node.injectable()[1] == Reason.KUBELET_REGISTERED
    await asyncio.sleep(0.2)
    assert node.injectable()[1] == Reason.KUBELET_UNREACHABLE
    assert "there is no kubelet.sock" in node.injectable()[2]


@pytest.mark.parametrize(
    ("state", "reason"),
    [(RegistrationState.REFUSED, Reason.KUBELET_REFUSED), (RegistrationState.TAKEN, Reason.KUBELET_CANNOT_SERVE)],
)
@virtual_time
async def test_why_it_is_not_registered_is_shown_once(node: Node, state: RegistrationState, reason: str) -> None:
    node.conditions.clear()
    for _ in range(2):
        node.sockets[0].report(state, "why")
    assert (node.injectable()[1], "why" in node.injectable()[2]) == (reason, True)
    assert node.conditions == [GPU]


@virtual_time
async def test_a_change_while_a_long_list_is_made_is_not_lost(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    is_made, may_go_on = asyncio.Event(), asyncio.Event()

    async def held(is_long: bool, run: Callable[[], object]) -> object:
        result = run()
        is_made.set()
        await may_go_on.wait()
        return result

    monkeypatch.setattr(backend, "in_thread_if", held)
    devices = node.sockets[0].make_service().devices
    for count in (5, 3):
        node.mirror.listed(GPU, 1, accept(Device(f"d{number}") for number in range(count)), 0.0)
        node.backend.resource_changed(GPU)
        await is_made.wait()
    assert len(devices.latest) == 1
    may_go_on.set()
    await asyncio.sleep(0.1)
    assert len(devices.latest) == 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(PluginOptions(pre_start_required=True), id="as the plugin wants"),
        pytest.param(PluginOptions(scope=f"{BUILT_IN}test"), id="built-in: its response is checked"),
    ],
)
@virtual_time
async def test_other_options_are_sent_with_another_registration(node: Node, options: PluginOptions) -> None:
    node.plugin(endpoint=2, options=options)
    node.backend.resource_changed(GPU)
    await asyncio.sleep(0.1)
    assert node.open == [GPU]
    assert [socket.make_service().options.pre_start_required for socket in node.sockets] == [False, True]


@virtual_time
async def test_a_resource_that_is_forgotten_is_not_served(node: Node) -> None:
    node.backend.resource_forgotten(GPU)
    node.backend.resource_forgotten(NIC)
    await asyncio.sleep(0.1)
    assert (node.open, node.injectable()[1]) == ([], Reason.NOTHING_FOR_KUBELET)
    node.backend.resource_changed(GPU)
    await asyncio.sleep(0.1)
    assert node.open == [GPU]


@pytest.mark.parametrize("problem", [CannotServe("no room"), OSError("no room")], ids=["no socket", "no directory"])
@virtual_time
async def test_what_cannot_be_served_is_tried_again_ever_later(
    problem: Exception, stopped: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nothing changes: the endpoint is what is run again after a failure."""
    stopped.plugin()
    stopped.problem = problem
    endpoint = KubeletEndpoint(stopped.backend, GPU)
    async with background(endpoint.run()):
        # with pauses of 1, 2, 4, 8, 16, 30 and 30 seconds
        for seconds, count in ((0.9, 1), (0.2, 2), (2.0, 3), (4.0, 4), (8.0, 5), (16.0, 6), (30.0, 7), (30.0, 8)):
            await asyncio.sleep(seconds)
            assert len(stopped.sockets) == count
        found = endpoint.registration
        assert (found.state.value[1], found.detail) == (Reason.KUBELET_CANNOT_SERVE, "no room")
        assert {(each.levelno, vars(each)["error"]) for each in caplog.records} == {(logging.ERROR, "no room")}
        stopped.problem = None
        await asyncio.sleep(30.0)
        assert stopped.open == [GPU]


@virtual_time
async def test_a_state_that_became_outdated_is_read_again(node: Node) -> None:
    async with background(node.reader.run()):
        await asyncio.sleep(1.0)
        readings = node.kubelet.calls["connections"]
        node.backend.resource_changed(GPU)
        await asyncio.sleep(1.0)
        assert node.kubelet.calls["connections"] == readings
        node.mirror.attribution.is_outdated = True
        node.backend.resource_changed(GPU)
        await asyncio.sleep(1.0)
        assert node.kubelet.calls["connections"] == readings + 1


@virtual_time
async def test_a_checkpoint_that_cannot_be_used_is_a_note_of_each_resource(node: Node) -> None:
    node.plugin(NIC)
    node.conditions.clear()
    assert node.backend.notes == ""
    node.kubelet.write_text("{")
    await node.reader.read()
    assert node.backend.notes.startswith(
        f"the kubelet's checkpoint {node.kubelet.directory.checkpoint} cannot be used ("
    )
    assert node.backend.notes.endswith("); allocations are read from its pod resources alone, without init containers")
    assert sorted(node.conditions) == [GPU, NIC]
    node.kubelet.write()
    await node.reader.read()
    assert (node.backend.notes, sorted(node.conditions)) == ("", [GPU, GPU, NIC, NIC])


@pytest.mark.parametrize(("scope", "is_noted"), [("", False), (f"{BUILT_IN}generic", False), (GPU_SCOPE, True)])
@virtual_time
async def test_of_gpus_it_is_said_that_containers_may_change_them(node: Node, scope: str, is_noted: bool) -> None:
    node.plugin(endpoint=2, options=PluginOptions(scope=scope))
    assert ("NVIDIA_VISIBLE_DEVICES" in node.injectable()[2]) is is_noted
