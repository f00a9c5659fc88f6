"""What the kubelet has beside us: by its checkpoint, or by its pod resources while that cannot be used."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.long_files import MAX_RESPONSE_BYTES
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import ContainerState, InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime.hooked_containers import HookedContainers
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.kubelet_answers import KubeletAnswers
from tests.fakes.log_lines import log_lines
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC
from tests.unit.node_agent.kubelet.reader_node import has_a_directory_there, has_a_torn_file

POD = ("default", "p")
HELD = Allocation("p", "main", GPU, {-1: ("a",)}, b"")
ROW = PodResourcesRow(*POD, "main", GPU, ("a",))


class Node:
    def __init__(self, kubelet: KubeletAnswers) -> None:
        self.kubelet = kubelet
        self.reader = kubelet.reader()
        self.found = KubeletCheckpoint(self.reader)
        self.reader.subscribe(self.found)
        self.hooked = HookedContainers(RuntimeScenario().manager, self.found, "nodedevice-system", lambda: None)
        self.hooked.configured(PluginSettings(nvml=NvmlSettings()))

    def edits(self) -> Any:
        """Of a container that names all GPUs in its environment."""
        of_pod = Sandbox("s", POD[1], POD[0], "p")
        named = RunningContainer("c", "s", "main", ContainerState.CREATED, env=(f"{VISIBLE_DEVICES}=all",))
        return self.hooked.edits(of_pod, named, None)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(KubeletAnswers(tmp_path, monkeypatch))


def met(node: Node) -> frozenset[tuple[str, str]]:
    return node.found.requests_met("p", POD)


UNUSABLE = pytest.mark.parametrize("breaks", [has_a_torn_file, has_a_directory_there])


@UNUSABLE
async def test_pod_resources_say_what_a_checkpoint_that_cannot_be_used_does_not(
    node: Node, breaks: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node.kubelet.write(HELD, registered={GPU: ("a",), NIC: ()})
    await node.found.refresh()
    assert (GPU in node.found, NIC in node.found, met(node)) == (True, True, frozenset({("main", GPU)}))
    assert node.kubelet.calls == {}, "the checkpoint says all"
    breaks(node)
    for rows, expected in (((ROW,), frozenset({("main", GPU)})), ((), frozenset())):
        node.kubelet.rows = rows
        await node.found.refresh()
        assert (GPU in node.found, NIC in node.found, met(node)) == (bool(rows), False, expected)
        assert (node.found.problem, node.found.requests_met("p", None)) == ("", frozenset())
    assert [line[:2] for line in log_lines(caplog.records)] == [("WARNING", "cannot read the kubelet's checkpoint")]


@UNUSABLE
async def test_where_neither_is_read_it_is_unknown(node: Node, breaks: Any) -> None:
    node.kubelet.write(HELD, registered={GPU: ("a",)})
    breaks(node)
    node.kubelet.problem = "UNAVAILABLE: no route"
    await node.found.refresh()
    assert "nor its pod resources (UNAVAILABLE: no route)" in node.found.problem
    with pytest.raises(InjectionRefused, match="names GPUs and may have them of the kubelet: the kubelet's checkpoint"):
        node.edits()
    node.kubelet.problem = ""
    await node.found.refresh()
    assert node.found.problem == ""
    assert node.edits().envs == {VISIBLE_DEVICES: "void"}


async def test_a_plugin_of_the_kubelet_may_give_gpus_by_the_environment(node: Node) -> None:
    response = api_pb2.ContainerAllocateResponse(envs={VISIBLE_DEVICES: "0"}).SerializeToString()
    other = api_pb2.ContainerAllocateResponse(envs={"OTHER": VISIBLE_DEVICES}).SerializeToString()
    for stored, is_given in ((response, True), (other, False), (VISIBLE_DEVICES.encode(), False)):
        node.kubelet.write(Allocation("p", "main", GPU, {-1: ("a",)}, stored))
        await node.found.refresh()
        assert (node.edits() is None) is is_given


async def test_a_response_that_is_not_read_may_give_gpus(node: Node) -> None:
    long = api_pb2.ContainerAllocateResponse(envs={VISIBLE_DEVICES: "x" * (4 << 20)}).SerializeToString()
    node.kubelet.write(Allocation("q", "main", GPU, {-1: ("a",)}, long), HELD)
    await node.found.refresh()
    assert node.edits().envs == {VISIBLE_DEVICES: "void"}
    node.kubelet.write(Allocation("p", "main", GPU, {-1: ("a",)}, long))
    await node.found.refresh()
    with pytest.raises(InjectionRefused, match=f"{GPU} .* is not read: .* at most {MAX_RESPONSE_BYTES}"):
        node.edits()


async def test_with_an_unusable_checkpoint_a_container_of_the_kubelets_waits(node: Node) -> None:
    """Its pod resources show what it has allocated, and not which variables its plugin has set."""
    node.kubelet.write_text("{ torn")
    node.kubelet.rows = (ROW,)
    await node.found.refresh()
    with pytest.raises(InjectionRefused, match=f"has allocated {GPU} to it, and its checkpoint cannot be used"):
        node.edits()
