"""A container's own environment undoes nothing of what it was given of GPUs, and gives it none."""

import logging
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, ContainerSettings
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox, Validator
from nodedevice_agent.plugins.contract import Given
from nodedevice_agent.plugins.nvml.creation import MOST_VARIABLES, GpuCreation
from nodedevice_agent.plugins.nvml.environment import unset_value
from nodedevice_agent.plugins.nvml.settings import GPU_SCOPE, NvmlSettings
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime.injection import Grant, Refusal
from nodedevice_api.parts import part_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from prometheus_client import REGISTRY

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, calls, pod
from tests.unit.node_agent.plugins.nvml.test_environment import NAMES
from tests.unit.node_agent.runtime.backend_node import BackendNode

NO_EDITS = ContainerEdits()
OF_NVML = PluginOptions(scope=GPU_SCOPE)
GIVEN = {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": "1m", "CUDA_DEVICE_SM_LIMIT": "30"}
ALL = "NVIDIA_VISIBLE_DEVICES=all"


def gpu(device_id: str, bus_id: str = "") -> Device:
    return Device(device_id, attributes=(("pciBusID", bus_id),), identity=(device_id,))


def serving(devices: Any, options: PluginOptions = OF_NVML) -> RuntimeScenario:
    scenario = RuntimeScenario()
    scenario.sync()
    scenario.plugin(devices, options=options)
    return scenario


def holding(
    env: dict[str, str] | None = None, options: PluginOptions = OF_NVML, **own: frozenset[str] | bool
) -> RuntimeScenario:
    """Pod p has a GPU, whatever the resource is called, and the plugin answered this."""
    scenario = serving([gpu("GPU-1") if options.scope else "GPU-1"], options)
    settings = ContainerSettings(**own)  # type: ignore[arg-type]
    answer(scenario, scenario.see(pod("p", Container("main", limits={GPU: 1}, settings=settings))), env or GIVEN)
    return scenario


def answer(scenario: RuntimeScenario, effects: Any, env: dict[str, str], cdi: tuple[str, ...] = ()) -> Any:
    (call,) = calls(effects)
    return scenario.happens("allocated", call.ticket, AllocateResponse(b"x", ContainerEdits(env, cdi_devices=cdi)))


def granted(scenario: RuntimeScenario, *env: str) -> Grant:
    decision = scenario.injection.decide(sandbox("p"), "main", env)
    assert isinstance(decision, Grant), decision
    return decision


def replaced(given: Grant) -> tuple[str, ...]:
    """The container's own variables that have another value."""
    return tuple(name for creation in given.overruled for name in creation.names)


class TestAContainerWithAGpu:
    @pytest.mark.parametrize("name", NAMES)
    def test_has_what_the_plugin_answered(self, name: str) -> None:
        """Whether the variable is its pod's, which the API shows, or comes from envFrom or its image."""
        for own in (frozenset({name}), frozenset[str]()):
            given = granted(holding(GIVEN | {name: "given"}, envs=own), "PATH=/bin", f"{name}=mine")
            assert given.edits.envs == GIVEN | {name: "given"}
            assert (given.omitted, replaced(given)) == ((), (name,))

    @pytest.mark.parametrize("name", NAMES)
    def test_has_no_other(self, name: str) -> None:
        given = granted(holding({"A": "b"}, envs=frozenset({name})), f"{name}=mine")
        assert given.edits.envs == {"A": "b", name: unset_value(name)} != {"A": "b", name: "mine"}
        assert replaced(given) == (name,)

    def test_keeps_what_is_its_own(self) -> None:
        name = "CUDA_VISIBLE_DEVICES"
        given = granted(holding(GIVEN | {name: "0"}, envs=frozenset({name})), f"{name}=1")
        assert (given.edits.envs, given.omitted, given.overruled) == (GIVEN, (f"env {name}",), ())

    async def test_after_a_restart_before_the_configuration_is_known(self, tmp_path: Path) -> None:
        after = holding().rebooted()
        assert isinstance(after.injection.decide(sandbox("p"), "main", [ALL]), Refusal)
        node = Node(tmp_path, after, configured=False)
        after.plugin([gpu("GPU-1")], options=OF_NVML)
        assert await node.created(NAMING) == GIVEN

    def test_whose_image_and_pod_name_gpus_is_refused(self) -> None:
        """A runtime sets the first of two to our value, and then keeps the second."""
        decision = holding().injection.decide(sandbox("p"), "main", ["NVIDIA_VISIBLE_DEVICES=x", ALL])
        assert isinstance(decision, Refusal)
        assert "remove NVIDIA_VISIBLE_DEVICES from the pod's spec" in decision.message
        assert granted(holding(), ALL, "NVIDIA_VISIBLE_DEVICES=GPU-1").edits.envs == GIVEN

    def test_by_cdi_may_have_it_twice(self) -> None:
        """The specification's value comes last; without it, or without CDI, the pod's would."""
        twice = ["NVIDIA_VISIBLE_DEVICES=x", ALL]
        for env, cdi, is_granted in ((VOID, ("a/b=c",), True), (VOID, (), False), ({"A": "b"}, ("a/b=c",), False)):
            scenario = serving([Device("GPU-1", identity=("GPU-1",), files=(("a/b=c", ""),))])
            answer(scenario, scenario.see(pod("p", gpu=1)), env, cdi)
            assert isinstance(scenario.injection.decide(sandbox("p"), "main", twice), Grant) is is_granted


def parts_of(parent: str, bus_id: str) -> ListedDevices:
    return accept([Device(part_id(parent, 0), parent=parent)], parents={parent: gpu(parent, bus_id)})


class TestTwoResourcesOfGpus:
    def holding(self, one: dict[str, str], other: dict[str, str]) -> RuntimeScenario:
        """One GPU each, the other one's with the lower bus ID."""
        scenario = serving(parts_of("GPU-1", "0000:9a:00.0"))
        scenario.plugin(parts_of("GPU-2", "0000:1a:00.0"), NIC, 2, options=OF_NVML)
        effects = scenario.see(pod("p", gpu=1, nic=1))
        for env in (one, other):
            effects = answer(scenario, effects, env)
        return scenario

    def test_are_joined_in_the_drivers_order(self) -> None:
        one = {"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": "1m", "A": "1"}
        other = {"NVIDIA_VISIBLE_DEVICES": "GPU-2", "CUDA_DEVICE_MEMORY_LIMIT_0": "2m", "B": "2"}
        assert granted(self.holding(one, other), ALL).edits.envs == {
            "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2",
            "CUDA_DEVICE_MEMORY_LIMIT_0": "2m",
            "CUDA_DEVICE_MEMORY_LIMIT_1": "1m",
            "A": "1",
            "B": "2",
        }

    def test_or_refused_with_the_reason(self) -> None:
        refusal = self.holding({"CUDA_OVERSUBSCRIBE": "true"}, {"CUDA_OVERSUBSCRIBE": "false"}).refusal("p")
        assert f"{GPU} and {NIC} have different limits.oversubscribe" in refusal.message


def outcomes() -> dict[str, float]:
    names = ("overruled", "withheld", "exempt", "refused")
    sample = "nodedevice_agent_gpu_environments_total"
    return {name: REGISTRY.get_sample_value(sample, {"outcome": name}) or 0.0 for name in names}


class Node(BackendNode):
    """It has the nvml plugin. counted: what changed in the metric."""

    def __init__(self, folder: Path, scenario: RuntimeScenario | None = None, *, configured: bool = True) -> None:
        super().__init__(folder, scenario or RuntimeScenario())
        if configured:
            self.backend.configured(PluginSettings(nvml=NvmlSettings(exempt=["kube-system", "team-*/dcgm-*"])))
        self.before = outcomes()

    async def created(
        self, made: RunningContainer, namespace: str = "default", name: str = "p"
    ) -> dict[str, str] | None:
        edits = await self.backend.create_container(Sandbox("s", name, namespace, "p"), made)
        return None if edits is None else dict(edits.envs)

    @property
    def counted(self) -> list[str]:
        return [name for name, count in outcomes().items() if count > self.before[name]]


VOID = {"NVIDIA_VISIBLE_DEVICES": "void"}
NAMING = container("p", env=("PATH=/bin", ALL))


class TestAContainerWithoutAGpu:
    @pytest.mark.parametrize("kind", list(ContainerKind))
    async def test_gets_none(self, tmp_path: Path, kind: ContainerKind) -> None:
        """Before the API shows its pod, and after; of each kind, and one that no pod's spec has."""
        node = Node(tmp_path)
        assert await node.created(NAMING) == VOID
        node.scenario.see(pod("p", Container("main", kind)))
        assert await node.created(NAMING) == VOID
        node.scenario.see(pod("p", Container("other", kind, settings=ContainerSettings(is_privileged=True))))
        assert await node.created(NAMING) == VOID
        assert node.counted == ["withheld"]

    def test_to_which_another_plugin_gives_one_by_cdi(self) -> None:
        for device, is_withheld in (("nvidia.com/gpu=0", False), ("example.com/nic=0", True)):
            given = ContainerEdits(cdi_devices=(device,))
            assert (GpuCreation(()).for_any(sandbox("p"), NAMING, Given(False, given)) is not None) is is_withheld

    async def test_of_a_claim_or_the_kubelets_plugin(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        for device in ("k8s.gpu.nvidia.com/claim=x", "nvidia.com/gpu=GPU-1"):
            assert await node.created(container("p", env=(ALL,), cdi_devices=(device,))) is None
        for device in ("example.com/nic=0", "evilnvidia.com/gpu=0"):
            assert await node.created(container("p", env=(ALL,), cdi_devices=(device,))) == VOID
        write_kubelets(tmp_path, "p", "main", {"NVIDIA_VISIBLE_DEVICES": "GPU-1"})
        assert await node.created(NAMING) is None
        assert await node.created(container("p", "other", env=(ALL,))) == VOID
        write_kubelets(tmp_path, "p", "main", {"A": "b"})
        assert await node.created(NAMING) == VOID

    @pytest.mark.parametrize(
        ("namespace", "name", "is_exempt"),
        [
            ("kube-system", "any", True),
            ("kube-system-2", "any", False),
            ("team-a", "dcgm-x", True),
            ("team-a", "other", False),
            ("default", "kube-system", False),
        ],
    )
    async def test_whose_pod_is_exempt(
        self, tmp_path: Path, namespace: str, name: str, is_exempt: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        node = Node(tmp_path, holding())
        node.backend.runtime_connected("containerd", "v2.4.2", Validator.ON)
        changes = node.changes
        assert await node.created(container("p", "other", env=(ALL,)), namespace, name) == (None if is_exempt else VOID)
        assert node.counted == (["exempt"] if is_exempt else ["withheld"])
        assert node.changes - changes == is_exempt
        assert (f"exempt by nvml.exempt: {namespace}/{name}" in node.message) is is_exempt
        node.backend.sandbox_removed(Sandbox("s", name, namespace, "p"))
        assert node.changes - changes == 2 * is_exempt
        assert node.message.endswith(", unless they start while this agent is away")

    async def test_whose_image_and_pod_name_gpus_is_refused(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        sample = "nodedevice_agent_containers_refused_total"
        before = REGISTRY.get_sample_value(sample)
        with pytest.raises(InjectionRefused, match=r"nvml\.exempt"):
            await node.created(container("p", env=(ALL, ALL)))
        assert node.counted == ["refused"]
        assert (REGISTRY.get_sample_value(sample) or 0) - (before or 0) == 1
        assert await node.created(container("p", env=(ALL, "NVIDIA_VISIBLE_DEVICES=none"))) is None

    async def test_with_more_variables_about_gpus_than_anybody_needs_is_refused(self, tmp_path: Path) -> None:
        """Each would be a part of the response. On a node without GPUs they mean nothing."""
        node = Node(tmp_path)
        many = tuple(f"CUDA_MPS_{number}=x" for number in range(MOST_VARIABLES - 1))
        assert all(map(node.backend.reads_variable, many))
        assert not any(map(node.backend.reads_variable, ("PATH=/bin", "CUDA_PATH=x", "NVIDIA=x", "MY_CUDA_MPS_X=x")))
        assert await node.created(container("p", env=(*many, ALL))) == VOID
        with pytest.raises(InjectionRefused, match=r"sets 1025 .*; the limit is 1024: remove them from the pod's spec"):
            await node.created(container("p", env=(*many, ALL, "CUDA_MPS_MORE=x")))
        node.backend.configured(PluginSettings())
        assert await node.created(container("p", env=(*many, ALL, "CUDA_MPS_MORE=x"))) is None


def write_kubelets(folder: Path, pod_uid: str, name: str, env: dict[str, str], more: ContainerEdits = NO_EDITS) -> None:
    """The kubelet's checkpoint: its own plugin answered this."""
    mounts = [api_pb2.Mount(container_path=m.container_path, host_path=m.host_path) for m in more.mounts]
    response = api_pb2.ContainerAllocateResponse(envs=env, mounts=mounts, annotations=more.annotations)
    given = Allocation(pod_uid, name, "nvidia.com/gpu", {-1: ("GPU-1",)}, response.SerializeToString())
    file = folder / "device-plugins" / "kubelet_internal_checkpoint"
    file.parent.mkdir(exist_ok=True)
    # another file each time, as the kubelet writes it
    file.with_suffix(".new").write_text(encode(Checkpoint((given,), {"nvidia.com/gpu": ("GPU-1",)})))
    file.with_suffix(".new").rename(file)
