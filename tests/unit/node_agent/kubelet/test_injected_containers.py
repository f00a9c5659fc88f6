"""After a move to the kubelet: devices in containers that got them by NRI stay held while these run."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, Sandbox
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_agent.kubelet.injected_containers import InjectedContainers
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, DELIVERY_NRI

from tests.fakes.settled import attributing, host_of
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.pods import GPU, HASH, mirror_pod, pod
from tests.unit.node_agent.devicemanager.scenario import held_by
from tests.unit.node_agent.kubelet.test_device_files import message

INJECTED = replace(held_by("one", "d0"), delivery=DELIVERY_NRI)
STATIC = replace(held_by(HASH, "d1"), delivery=DELIVERY_NRI)
GRACE_SECONDS = 10.0
MARK = {CONTAINER_DEVICES_ANNOTATION: f"{GPU}=0123456789ab"}


def sandbox(uid: str, name: str = "") -> Sandbox:
    return Sandbox(f"sandbox-{uid}", name or uid, "default", uid)


def container(uid: str, state: ContainerState = ContainerState.RUNNING, **more: Any) -> RunningContainer:
    return RunningContainer(f"main-{uid}", f"sandbox-{uid}", "main", state, **{"annotations": MARK, **more})


STATIC_SANDBOX = sandbox(HASH, "static")


class Node:
    """The agent has just started with what it held before the move, which the kubelet does not know."""

    def __init__(self, *allocations: Allocation) -> None:
        static = (StaticPod(HASH, "default", "static"),)
        self.found = attributing(0.0, Checkpoint(allocations, {GPU: ()}, static_pods=static))
        self.runtime = InjectedContainers(host_of(self.found), GRACE_SECONDS)
        self.found.connected(GPU, 1, PluginOptions(), 0.0)
        self.found.listed(GPU, 1, accept(Device(f"d{index}") for index in range(3)), 0.0)
        self.found.table.cordoned(GPU, "object", {}, 0.0)
        message(self.found)

    def held(self) -> dict[str, tuple[str, ...]]:
        return {held.pod_uid: held.device_ids for held in self.found.book.of_resource(GPU)}

    def sees(self, *pods: Pod) -> None:
        self.found.pod_events.synced([pod("other"), *pods], 0.0)

    def lists(self, *containers: RunningContainer) -> None:
        self.runtime.synchronized([sandbox("one"), STATIC_SANDBOX], containers)


@pytest.mark.parametrize("is_known_first", [True, False])
@pytest.mark.parametrize("how", ["ended", "removed", "listed"])
def test_a_pod_that_was_deleted_by_force_holds_on_until_its_container_ends(how: str, is_known_first: bool) -> None:
    node = Node(INJECTED)
    if is_known_first:
        node.sees(pod("one", gpu=1))
    node.lists(container("one"))
    if is_known_first:
        node.found.pod_events.gone("one", 0.0)
    node.sees()
    assert node.held() == {"one": ("d0",)}
    if how == "ended":
        # the runtime has removed the sandbox by then
        node.runtime.container_ended(Sandbox("", "", "", ""), container("one"))
    elif how == "removed":
        node.runtime.sandbox_removed(sandbox("one"))
    else:
        node.lists(container("one", ContainerState.STOPPED))
    assert node.held() == {}
    assert node.found.book.releasing == {}


def test_a_container_without_a_mark_holds_nothing() -> None:
    node = Node(INJECTED)
    node.sees(pod("one", gpu=1))
    node.lists(container("one", annotations={}))
    node.found.pod_events.gone("one", 0.0)
    assert node.held() == {}


def test_the_end_of_a_container_is_not_that_of_its_pod() -> None:
    node = Node(INJECTED)
    node.sees(pod("one", gpu=1))
    node.lists(container("one"))
    node.runtime.container_ended(sandbox("one"), container("one"))
    assert node.held() == {"one": ("d0",)}


@pytest.mark.parametrize("is_reached", [True, False])
@virtual_time
async def test_until_the_runtime_has_listed_none_has_ended(is_reached: bool) -> None:
    node = Node(INJECTED, STATIC)
    node.sees()
    for seconds in (GRACE_SECONDS - 1, 0.5):
        # it may be restarting
        node.runtime.runtime_disconnected("no socket")
        await asyncio.sleep(seconds)
        assert node.held() == {"one": ("d0",), HASH: ("d1",)}
    if is_reached:
        node.lists(container(HASH))
        node.runtime.runtime_disconnected("it restarts")
    await asyncio.sleep(1.0)
    assert node.held() == ({HASH: ("d1",)} if is_reached else {})


@pytest.mark.parametrize("how", ["gone", "not in the list"])
def test_a_static_pod_holds_on_without_its_mirror_pod(how: str) -> None:
    node = Node(STATIC)
    node.sees(mirror_pod("mirror"))
    node.lists(container(HASH))
    assert node.held() == {"mirror": ("d1",)}
    if how == "gone":
        node.found.pod_events.gone("mirror", 0.0)
    else:
        node.sees()
    assert node.held() == {HASH: ("d1",)}
    node.sees(mirror_pod("again"))
    assert node.held() == {"again": ("d1",)}
    assert node.found.book.releasing == {}
    node.runtime.sandbox_removed(STATIC_SANDBOX)
    node.found.pod_events.gone("again", 0.0)
    assert node.held() == {}


def test_what_the_kubelet_gave_ends_with_the_pod() -> None:
    node = Node(INJECTED)
    node.sees(pod("one", gpu=1), pod("two", gpu=1))
    node.lists(container("one"), container("two"))
    message(node.found, held_by("two", "d2"))
    assert node.held() == {"one": ("d0",), "two": ("d2",)}
    node.found.pod_events.gone("two", 0.0)
    assert node.held() == {"one": ("d0",)}
