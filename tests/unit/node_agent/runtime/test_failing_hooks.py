"""A creation hook that raises holds back the containers of its plugin's devices, and no others."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import InjectionRefused, Sandbox
from nodedevice_agent.plugins.contract import has_part
from nodedevice_agent.plugins.nvml import creation
from nodedevice_agent.plugins.nvml.creation import GpuCreation
from nodedevice_agent.plugins.nvml.settings import GPU_SCOPE, NvmlSettings
from nodedevice_agent.plugins.settings import KINDS, PluginSettings
from nodedevice_agent.runtime.hooked_containers import HookedContainers
from nodedevice_agent.runtime.injection import Grant, Injection, Refusal
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

from tests.fakes.kubelet_reader import reader_of
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, pod

METHODS = ["reads", "decides", "overrules", "joined", "for_holder", "for_any", "note"]
MADE = "hook"
ALL = [*METHODS, MADE]
WHY = "container main cannot start: built-in plugin nvml failed to decide about its devices (KeyError('a bug'))"
REFUSED = pytest.raises(InjectionRefused, match=f"^{re.escape(WHY)}")
GPU_EDITS = ContainerEdits({"NVIDIA_VISIBLE_DEVICES": "GPU-1"})


class Node:
    """With one GPU, and one device of another plugin. failing: the method of the nvml plugin's hook that raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path, failing: str) -> None:
        self.failing = failing
        self.changes = 0

        def hook(configured: Sequence[NvmlSettings], namespace: str) -> Any:
            made = GpuCreation((*configured[0].exempt, namespace))
            for name in METHODS:
                monkeypatch.setattr(made, name, self._failing(name, getattr(made, name)), raising=False)
            return self._failing(MADE, lambda: made)()

        monkeypatch.setattr(creation, "hook", hook)
        self.scenario = RuntimeScenario()
        self.scenario.sync()
        self.scenario.plugin(["GPU-1"], options=PluginOptions(scope=GPU_SCOPE))
        self.scenario.plugin(["n0"], NIC, 2)
        kubelet = KubeletCheckpoint(reader_of(directory))
        self.hooked = HookedContainers(self.scenario.manager, kubelet, "ours", self._changed)
        self.hooked.configured(PluginSettings(nvml=NvmlSettings()))
        self.injection = Injection(self.scenario.manager, self.hooked.hooks)

    def _changed(self) -> None:
        self.changes += 1

    def _failing(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            if name == self.failing:
                raise KeyError("a bug")
            return method(*args)

        return called

    def gives(self, uid: str, edits: ContainerEdits, **requests: int) -> None:
        (call,) = calls(self.scenario.see(pod(uid, **requests)))
        self.scenario.happens("allocated", call.ticket, AllocateResponse(b"x", edits))

    def creates(self, uid: str, env: Sequence[str] = (), annotation: str = "", **shown: Any) -> ContainerEdits | None:
        """Raises InjectionRefused."""
        read = tuple(entry for entry in env if self.hooked.reads(entry))
        annotations = {"cdi.k8s.io/devices": annotation} if annotation else {}
        created = container(uid, env=read, annotations=annotations, **shown)
        of_pod = Sandbox(f"sandbox-{uid}-1", uid, "default", uid)
        self.hooked.asks_kubelet(of_pod, created)
        decision = self.injection.decide(of_pod, "main", read)
        if isinstance(decision, Refusal):
            raise InjectionRefused(decision.message)
        return self.hooked.edits(of_pod, created, decision.edits if isinstance(decision, Grant) else None)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Node]:
    return lambda failing: Node(monkeypatch, tmp_path, failing)


@pytest.mark.parametrize("failing", ALL)
def test_containers_that_have_nothing_to_do_with_it_start(node: Callable[[str], Node], failing: str) -> None:
    found = node(failing)
    assert found.creates("plain", ["PATH=/bin", "HOME=/", "GPUS=all"]) is None
    assert found.creates("cdi", annotation="vendor.com/net=0,vendor.com/net=1") is None
    assert found.creates("mount", null_mounts=("/etc/fstab",)) is None
    found.gives("nic", ContainerEdits({"PORT": "1"}), nic=1)
    made = found.creates("nic", ["PATH=/bin"])
    assert made is not None
    assert made.envs == {"PORT": "1"}


@pytest.mark.parametrize("failing", ["decides", "joined", "for_holder", "for_any", MADE])
def test_containers_with_its_devices_are_refused(node: Callable[[str], Node], failing: str) -> None:
    found = node(failing)
    found.gives("gpu", GPU_EDITS, gpu=1)
    with REFUSED:
        found.creates("gpu")


@pytest.mark.parametrize("failing", ["for_any", MADE])
@pytest.mark.parametrize(
    "asks",
    [
        {"env": ["NVIDIA_VISIBLE_DEVICES=all"]},
        {"env": ["DOCKER_RESOURCE_GPU=all"]},
        {"env": ["CUDA_VERSION=9.0"]},
        {"annotation": "nvidia.com/gpu=all"},
        {"annotation": "vendor.com/net=0,all"},
        {"null_mounts": ("/var/run/nvidia-container-devices/all",)},
    ],
    ids=str,
)
def test_who_may_ask_for_them_is_refused(node: Callable[[str], Node], failing: str, asks: dict[str, Any]) -> None:
    with REFUSED:
        node(failing).creates("other", **asks)


@pytest.mark.parametrize("failing", ["overrules", MADE])
def test_anothers_response_that_may_name_its_devices_is_refused(node: Callable[[str], Node], failing: str) -> None:
    found = node(failing)
    found.gives("nic", ContainerEdits(cdi_devices=("nvidia.com/gpu=0",)), nic=1)
    with REFUSED:
        found.creates("nic")


def test_the_condition_shows_it_until_the_hook_decides_again(node: Callable[[str], Node]) -> None:
    found = node("for_any")
    assert "containers without a GPU" in found.hooked.note(GPU)
    before = found.changes
    for index in range(3):
        assert found.creates(f"plain-{index}") is None
    assert found.changes == before + 1
    fails = found.hooked.note(GPU)
    assert "containers without a GPU" not in fails
    assert ("cannot decide" in fails, found.hooked.note(NIC)) == (True, "")
    found.failing = ""
    assert found.creates("plain") is None
    assert found.hooked.note(GPU) == fails
    found.creates("other", ["NVIDIA_VISIBLE_DEVICES=all"])
    assert "containers without a GPU" in found.hooked.note(GPU)
    assert found.changes == before + 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if has_part(kind, "creation")])
def test_each_plugin_with_a_hook_declares_how_a_container_may_ask(kind: str) -> None:
    assert KINDS[kind].asking_variables
    assert KINDS[kind].asking_word
