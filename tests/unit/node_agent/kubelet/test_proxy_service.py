"""The kubelet's calls for a resource: what the device plugin is asked, what the kubelet gets, and what it is refused."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import grpc
import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import PluginFailed
from nodedevice_agent.kubelet.proxy_service import ProxyService
from nodedevice_agent.lib.deviceplugin_server.server import DeviceList
from nodedevice_agent.nri.host_devices import HostDevices, HostDeviceStat
from nodedevice_api.names import DELIVERY_NRI
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from prometheus_client import REGISTRY

from tests.fakes.settled import attributing
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, held_by, pod

PREFERS = PluginOptions(get_preferred_allocation_available=True)
OURS = PluginOptions(scope=f"{BUILT_IN}test")


class Aborted(Exception):
    """The kubelet got an error."""


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(f"{code.name}: {details}")


class Hangs(HostDeviceStat):
    """On a file system that does not answer."""

    async def stat_devices(self, host_paths: Iterable[str]) -> HostDevices:
        await asyncio.Event().wait()
        raise AssertionError


class Node:
    """A plugin of somebody, and the service that stands for it. calls: what it was asked. problem: why it fails."""

    def __init__(
        self, options: PluginOptions | None = None, devices: Sequence[Device] = (), stat: HostDeviceStat | None = None
    ) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.problem = ""
        self.preferred: tuple[str, ...] = ()
        self.response = api_pb2.ContainerAllocateResponse(envs={"ANSWER": "ok"})
        self.mirror = attributing(0.0)
        self.options = options or PluginOptions()
        self.plugin(GPU, self.options, *(devices or [Device(f"d{number}") for number in range(4)]))
        host = cast(PluginHost, SimpleNamespace(newest=self._newest))
        options_sent = api_pb2.DevicePluginOptions()
        self.service = ProxyService(GPU, DeviceList(), options_sent, self.mirror, host, stat or HostDeviceStat())

    def plugin(self, name: str, options: PluginOptions, *devices: Device) -> None:
        self.mirror.connected(name, 1, options, 0.0)
        self.mirror.listed(name, 1, accept(devices), 0.0)
        self.mirror.table.cordoned(name, "object", {}, 0.0)

    def held_elsewhere(self, device: Device) -> None:
        """A device of a built-in plugin, by the pod `one`."""
        self.plugin(NIC, OURS, device)
        self.mirror.pod_events.synced([pod("one", nic=1)], 0.0)
        self.mirror.attribution.read(KubeletState((held_by("one", device.id, name=NIC),), ()))

    def gives_out(self, *paths: str) -> None:
        for path in paths:
            self.response.devices.add(host_path=path, container_path=path, permissions="rw")

    async def prefer(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size)
        found = await self.service.GetPreferredAllocation(request, cast(Any, Context()))
        [one] = found.container_responses
        return [*one.deviceIDs]

    async def allocate(self, *containers: Sequence[str]) -> list[api_pb2.ContainerAllocateResponse]:
        request = api_pb2.AllocateRequest()
        for ids in containers:
            request.container_requests.add(devices_ids=ids)
        return [*(await self.service.Allocate(request, cast(Any, Context()))).container_responses]

    async def pre_start(self, *ids: str) -> None:
        request = api_pb2.PreStartContainerRequest(devices_ids=ids)
        found = await self.service.PreStartContainer(request, cast(Any, Context()))
        assert found == api_pb2.PreStartContainerResponse()

    def _newest(self, resource_name: str, call: str) -> Any:
        assert resource_name == GPU
        self._fail("nowhere", call)

        async def preferred(available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
            self.calls.append((call, available, must_include, size))
            self._fail("preferred", call)
            return self.preferred

        async def allocate(ids: tuple[str, ...]) -> AllocateResponse:
            self.calls.append((call, ids))
            self._fail("allocate", call)
            octets = self.response.SerializeToString()
            edits = with_edits_of(held_by("", *ids, response=octets)).edits
            assert edits is not None
            return AllocateResponse(octets, edits)

        async def pre_start(ids: tuple[str, ...]) -> None:
            self.calls.append((call, ids))
            self._fail("pre_start", call)

        return SimpleNamespace(options=self.options, preferred=preferred, allocate=allocate, pre_start=pre_start)

    def _fail(self, where: str, call: str) -> None:
        if self.problem == where:
            raise PluginFailed(GPU, call, "it is broken")


def failed(call: str, why: str) -> str:
    """All that the kubelet gets, as a pattern."""
    return f"^UNAVAILABLE: {call} of the device plugin of {GPU} failed: {why}$"


def metric(name: str) -> float:
    return REGISTRY.get_sample_value(f"nodedevice_agent_{name}", {"resource_name": GPU}) or 0.0


def logged(caplog: pytest.LogCaptureFixture) -> tuple[int, str, str, str]:
    """Level, message, and fields, of the one record."""
    [record] = caplog.records
    fields = vars(record)
    return record.levelno, record.message, fields["resource_name"], fields.get("error", "")


@pytest.mark.parametrize(
    ("options", "size", "found", "is_called"),
    [
        pytest.param(PREFERS, 2, ["d3", "d1"], True, id="as the plugin prefers"),
        pytest.param(PREFERS, 1, ["d3"], False, id="nothing is left to choose"),
        pytest.param(PluginOptions(), 2, ["d3", "d0"], False, id="a plugin without preferences"),
    ],
)
async def test_preferred_devices(options: PluginOptions, size: int, found: list[str], is_called: bool) -> None:
    node = Node(options)
    node.preferred = ("d1",)
    assert await node.prefer(["d2", "d1", "d0", "d3"], ["d3"], size) == found
    call = ("GetPreferredAllocation", ("d0", "d1", "d2", "d3"), ("d3",), size)
    assert node.calls == ([call] if is_called else [])


@pytest.mark.parametrize("problem", ["nowhere", "preferred"])
async def test_a_plugin_that_fails_to_prefer_is_ignored(problem: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error would fail the pod."""
    node = Node(PREFERS)
    node.problem = problem
    assert await node.prefer(["d0", "d1"], [], 1) == ["d0"]
    why = f"GetPreferredAllocation of the device plugin of {GPU} failed: it is broken"
    assert logged(caplog) == (logging.WARNING, "GetPreferredAllocation failed; ignoring it", GPU, why)


async def test_each_container_gets_the_plugins_response_as_it_is() -> None:
    node, before = Node(), metric("allocate_seconds_count")
    node.gives_out("/dev/null")
    assert (await node.allocate(["d2", "d0"], ["d1"])) == [node.response, node.response]
    assert node.calls == [("Allocate", ("d0", "d2")), ("Allocate", ("d1",))]
    assert metric("allocate_seconds_count") == before + 2


@pytest.mark.parametrize("problem", ["nowhere", "allocate"])
async def test_a_plugin_that_fails_to_allocate_fails_the_pod(problem: str, caplog: pytest.LogCaptureFixture) -> None:
    node, before = Node(), metric("allocate_failures_total")
    node.problem = problem
    with pytest.raises(Aborted, match=failed("Allocate", "it is broken")):
        await node.allocate(["d0"])
    assert metric("allocate_failures_total") == before + 1
    assert logged(caplog)[:2] == (logging.ERROR, "Allocate failed; the kubelet rejects the pod")


async def test_a_device_that_another_name_or_delivery_has_is_not_allocated() -> None:
    """The kubelet may have chosen before it read so."""
    node = Node(OURS, [Device("a", identity=("c188:0",)), Device("b"), Device("c")])
    node.held_elsewhere(Device("line", identity=("c188:0",)))
    node.mirror.book.add(replace(held_by("two", "c"), delivery=DELIVERY_NRI))
    same = f"a is the same device as line of {NIC}, and is allocated there"
    for device_id, why in (("a", same), ("c", "c is in use: another pod got it by the delivery nri")):
        with pytest.raises(Aborted, match=failed("Allocate", why)):
            await node.allocate(["b", device_id])
    assert node.calls == []
    assert len(await node.allocate(["b"])) == 1


@pytest.mark.parametrize(
    ("paths", "is_refused"),
    [
        pytest.param(["/dev/zero", "/dev/null"], True, id="beside another"),
        pytest.param(["/dev/zero"], False, id="another"),
        pytest.param(["/dev/null", "/nonexistent"], False, id="one that the runtime will not find"),
    ],
)
async def test_the_file_of_a_device_that_another_pod_holds_is_not_given_out(paths: list[str], is_refused: bool) -> None:
    node = Node()
    node.held_elsewhere(Device("line", identity=("c1:3",)))
    node.gives_out(*paths)
    if not is_refused:
        assert await node.allocate(["d0"]) == [node.response]
        return
    why = f"it allocates the device file of line of {NIC}, which another pod holds"
    with pytest.raises(Aborted, match=failed("Allocate", why)):
        await node.allocate(["d0"])


@virtual_time
async def test_a_file_system_that_hangs_is_not_waited_for() -> None:
    """The runtime reads the file, too."""
    node, clock = Node(stat=Hangs()), asyncio.get_running_loop().time
    node.gives_out("/dev/null")
    began = clock()
    assert await node.allocate(["d0"]) == [node.response]
    assert clock() - began == pytest.approx(2.0)


@pytest.mark.parametrize("is_required", [False, True])
async def test_only_a_plugin_that_wants_it_is_called_before_a_start(is_required: bool) -> None:
    node, before = Node(PluginOptions(pre_start_required=is_required)), metric("pre_start_seconds_count")
    await node.pre_start("d2", "d0")
    assert node.calls == ([("PreStartContainer", ("d0", "d2"))] if is_required else [])
    assert metric("pre_start_seconds_count") == before + is_required


@pytest.mark.parametrize("problem", ["nowhere", "pre_start"])
async def test_a_plugin_that_fails_before_a_start_fails_it(problem: str, caplog: pytest.LogCaptureFixture) -> None:
    node, before = Node(PluginOptions(pre_start_required=True)), metric("pre_start_failures_total")
    node.problem = problem
    with pytest.raises(Aborted, match=failed("PreStartContainer", "it is broken")):
        await node.pre_start("d0")
    assert metric("pre_start_failures_total") == before + 1
    assert logged(caplog)[:2] == (logging.ERROR, "PreStartContainer failed; the kubelet retries")
