"""The backend beside the kubelet's own device manager: what is left to it, when its file is read, and what it is made of."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.runtime import DeviceOwner, InjectionRefused, Validator
from nodedevice_api.names import DELIVERY_KUBELET, DELIVERY_NRI

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers
from tests.fakes.log_lines import log_lines
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, pod, published
from tests.unit.node_agent.runtime.backend_node import BackendNode

LEFT = "the kubelet has allocated what a pod waits for; leaving it to the kubelet"


class Node(BackendNode):
    """The agent serves GPUs, or has served them."""

    def __init__(self, kubelet: KubeletAnswers, scenario: RuntimeScenario | None = None, **given: Any) -> None:
        found = scenario or RuntimeScenario.with_plugin(1)
        found.now = asyncio.get_running_loop().time()
        super().__init__(kubelet.directory.device_plugins, found, reader=kubelet.reader(), **given)
        self.kubelet = kubelet

    def kubelet_has(self, *uids: str) -> None:
        """GPUs of a plugin of its own, which pods of these UIDs hold."""
        held = (Allocation(uid, "main", GPU, {-1: (f"k-{uid}",)}, b"") for uid in uids)
        self.kubelet.write(*held, registered={GPU: ("k",)})


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KubeletAnswers:
    return KubeletAnswers(tmp_path, monkeypatch)


@pytest.fixture
async def node(kubelet: KubeletAnswers) -> Node:
    """The agent's plugin has gone, and pod p waits for it."""
    found = Node(kubelet)
    found.scenario.disconnect()
    found.scenario.run(pod("p", gpu=1))
    assert found.scenario.reasons() == {"p": "EndpointStopped"}
    return found


async def test_one_that_waits_for_a_plugin_may_have_the_kubelets(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node.kubelet_has("p")
    before = len(node.scenario.effects)
    assert await node.create("p") is None
    assert node.scenario.reasons() == {}
    assert published(node.scenario.effects[before:]) == {GPU}
    assert log_lines(caplog.records) == [("INFO", LEFT, {"pod_uid": "p", "resource_name": GPU})]


async def test_a_resource_that_only_the_kubelet_serves_is_none_of_ours(kubelet: KubeletAnswers) -> None:
    node = Node(kubelet, RuntimeScenario())
    node.scenario.see(pod("p", gpu=1))
    with pytest.raises(InjectionRefused, match=f"no device plugin has registered {GPU}"):
        await node.create("p")
    node.kubelet_has()
    assert await node.create("p") is None


@pytest.fixture
async def moved(kubelet: KubeletAnswers) -> Node:
    """The pod old has a GPU that the kubelet allocated, from before the name moved here."""
    edits = ContainerEdits(envs={"ANSWER": "the kubelet's"})
    held = Allocation("old", "main", GPU, {-1: ("k-old",)}, b"ok", edits, delivery=DELIVERY_KUBELET)
    node = Node(kubelet, RuntimeScenario(Checkpoint((held,), {GPU: ()}), delivery=DELIVERY_NRI))
    node.scenario.plugin(["k-old", "a"])
    node.kubelet_has("old")
    return node


async def test_what_the_kubelet_has_allocated_it_delivers_while_new_pods_get_theirs_here(moved: Node) -> None:
    moved.scenario.run(pod("old", gpu=1), pod("new", gpu=1))
    assert await moved.create("old") is None
    moved.backend.validate(sandbox("old", held=True), container("old"))
    assert (await moved.create("new")).envs == {"ANSWER": "ok"}
    deliveries = {a.pod_uid: a.delivery for a in moved.scenario.manager.checkpoint().allocations}
    assert deliveries == {"old": DELIVERY_KUBELET, "new": DELIVERY_NRI}


async def test_a_container_may_have_devices_of_the_kubelet_and_of_the_agent(moved: Node) -> None:
    moved.scenario.plugin(["n"], NIC, 2)
    moved.scenario.run(pod("old", gpu=1, nic=1))
    edits = await moved.create("old")
    assert edits.envs == {"ANSWER": "ok"}
    moved.backend.container_started(sandbox("old"), container("old", annotations=dict(edits.annotations)))
    assert not moved.backend.not_injected("old", "main", GPU)
    assert not moved.backend.not_injected("old", "main", NIC)


async def test_what_the_kubelet_has_forgotten_is_delivered_here(moved: Node) -> None:
    """A container must not start without its device."""
    moved.kubelet_has()
    moved.scenario.run(pod("old", gpu=1))
    assert (await moved.create("old")).envs == {"ANSWER": "the kubelet's"}


async def test_a_resource_that_changes_may_be_the_kubelets_by_now(kubelet: KubeletAnswers, tmp_path: Path) -> None:
    """Whether its containers run without devices is not known before the kubelet was read."""
    async with FakeRuntime(tmp_path / "nri.sock") as runtime:
        node = Node(kubelet, nri_socket=str(runtime.socket), nri_index="42")
        node.scenario.disconnect()
        node.scenario.run(pod("p", gpu=1))
        async with background(node.backend.run()):
            plugin = await runtime.plugin()
            await until(lambda: node.backend.is_settled)
            assert plugin.registered.plugin_idx == "42"
            node.backend.synchronized([sandbox("p")], [container("p")])
            before = node.changes
            node.backend.resource_changed(GPU)
            assert not node.backend.not_injected("p", "main", GPU)
            await until(lambda: node.changes > before)
            assert node.backend.not_injected("p", "main", GPU)
            node.kubelet_has("p")
            node.backend.resource_changed(GPU)
            await until(lambda: node.scenario.reasons() == {})
            await plugin.close()


@pytest.mark.parametrize(
    ("setting", "is_on", "owner"),
    [
        pytest.param("host", True, DeviceOwner(), id="the host's"),
        pytest.param("container", False, DeviceOwner(1000), id="the container's"),
        pytest.param("auto", True, DeviceOwner(1000), id="as the runtime has it"),
        pytest.param("auto", False, DeviceOwner(), id="as the runtime does not have it"),
    ],
)
async def test_whose_device_files_are_is_that_of_the_settings(
    kubelet: KubeletAnswers, tmp_path: Path, setting: str, is_on: bool, owner: DeviceOwner
) -> None:
    config = tmp_path / "crio.conf"
    config.write_text(f"[crio.runtime]\ndevice_ownership_from_security_context = {str(is_on).lower()}\n")
    node = Node(kubelet, device_ownership=setting, runtime_config=str(config))
    node.backend.runtime_connected("cri-o", "1.35.0", Validator.NOT_SEEN)
    found = await node.backend.creation_settings(sandbox("p"), container("p", user=1000))
    assert (found.owner, found.references) == (owner, None)
    node.scenario.run(pod("p", gpu=1))
    found = await node.backend.creation_settings(sandbox("p"), container("p", user=1000))
    assert (found.owner, found.references) == (owner, NO_SETTINGS.references)
