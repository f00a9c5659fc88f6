"""Nothing by which a container asks NVIDIA's runtime for device files adds one that it was not allocated.

Every variable, value and situation: what the runtime would add is computed after the agent's edits (tests/fakes/nvidia_runtime.py).
"""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.nri.codec import created_container
from nodedevice_agent.plugins.nvml.environment import for_holder
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nvidia_runtime import CAPABILITIES, FEATURES, IMEX, SWARM_RESOURCE, added, visible_devices
from tests.unit.node_agent.devicemanager.runtime_scenario import container
from tests.unit.node_agent.runtime.test_gpu_environment import Node, holding, write_kubelets

VISIBLE = "NVIDIA_VISIBLE_DEVICES"
VALUES = (
    "all",
    " all ",
    "ALL",
    "none",
    " none",
    "void",
    " void",
    "",
    ",",
    "GPU-9",
    "0",
    "0,void",
    "all,none",
    "none,all",
)
ON = ("enabled", "all", "")
OTHERS = (*FEATURES, *CAPABILITIES, IMEX, SWARM_RESOURCE)
CLAIMS = ("k8s.gpu.nvidia.com/claim=a", "k8s.device-plugin.nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-1")
NO_GPUS = (
    *("k8s.compute-domain.nvidia.com/claim=a-channel-0", "nvidia.com/net-rdma=mlx5_0", "nvidia.com/nvswitch=all"),
    *("nvidia.com/gdrcopy=all", "k8s.device-plugin.nvidia.com/gds=all", "example.com/gpu=0", "evilnvidia.com/gpu=0"),
)


def environments() -> Iterator[tuple[str, ...]]:
    """Each value of NVIDIA_VISIBLE_DEVICES, and none, with each other variable; with an old image, too."""
    cases = [*product((*VALUES, None), OTHERS, ON), *product((*VALUES, None), [SWARM_RESOURCE], VALUES)]
    for visible, other, value in cases:
        env: tuple[str, ...] = (f"{other}={value}", "NVIDIA_API_KEY=mine", "NVIDIA_DRIVER_CAPABILITIES=all")
        env = env if visible is None else (f"{VISIBLE}={visible}", *env)
        yield env
        if visible in (None, "none"):
            yield ("CUDA_VERSION=9.0", *env)


ENVIRONMENTS = list(environments())


def edited(env: tuple[str, ...], envs: Mapping[str, str] | None) -> list[str]:
    """As a runtime sets variables for an NRI plugin."""
    found = {**dict(entry.split("=", 1) for entry in env), **(envs or {})}
    return [f"{name}={value}" for name, value in found.items()]


class TestVariables:
    async def test_without_an_allocation_add_nothing(self, tmp_path: Path) -> None:
        """Also beside CDI devices that are not GPUs, whoever gave them."""
        node = Node(tmp_path)
        for env in ENVIRONMENTS:
            for devices in ((), NO_GPUS):
                envs = await node.created(container("p", env=env, cdi_devices=devices))
                after = edited(env, envs)
                assert added(after) == set(), (env, envs)
                assert "NVIDIA_API_KEY=mine" in after

    def test_with_a_gpu_of_this_plugin_add_that_one(self) -> None:
        for env in ENVIRONMENTS:
            own = [(name, value) for name, _, value in (entry.partition("=") for entry in env)]
            after = edited(env, for_holder(own, {VISIBLE: "GPU-1"}).envs)
            assert added(after) == {"GPU-1"}, env
            assert "NVIDIA_API_KEY=mine" in after

    @pytest.mark.parametrize("way", ["kubelet", *CLAIMS])
    async def test_with_a_gpu_of_somebody_else_add_nothing_besides(self, tmp_path: Path, way: str) -> None:
        node, devices = Node(tmp_path), () if way == "kubelet" else (way,)
        if not devices:
            write_kubelets(tmp_path, "p", "main", {VISIBLE: "GPU-1"})
        for env in ENVIRONMENTS:
            # a plugin of the kubelet's, or a specification, has set the variable by then
            given = (f"{VISIBLE}={'void' if devices else 'GPU-1'}", *(each for each in env if VISIBLE not in each))
            envs = await node.created(container("p", env=given, cdi_devices=devices))
            assert added(edited(given, envs)) == (set() if devices else {"GPU-1"}), given

    async def test_with_a_gpu_of_a_plugin_that_is_served_here_add_that_one(self, tmp_path: Path) -> None:
        """Such as NVIDIA's, HAMi's or gpushare's; whether the variable is the pod's own or its image's."""
        for own in (frozenset({VISIBLE}), frozenset[str]()):
            node = Node(tmp_path, holding({VISIBLE: "GPU-7", "A": "b"}, PluginOptions(), envs=own))
            for env in ENVIRONMENTS:
                envs = await node.created(container("p", env=env))
                assert envs is not None
                assert (added(edited(env, envs)), envs["A"]) == ({"GPU-7"}, "b"), env

    @pytest.mark.parametrize("value", ["", "void", " none "])
    async def test_of_a_plugin_that_gives_no_gpu_make_none_of_it(self, tmp_path: Path, value: str) -> None:
        """Such as a plugin of network cards, the kubelet's or one that is served here, whose answer says so."""
        env = (f"{VISIBLE}=all", "NVIDIA_GDS=enabled")
        write_kubelets(tmp_path, "p", "main", {VISIBLE: value})
        assert added(edited(env, await Node(tmp_path).created(container("p", env=env)))) == set()
        here = Node(tmp_path / "here", holding({VISIBLE: value}, PluginOptions(), envs=frozenset({VISIBLE})))
        assert added(edited(env, await here.created(container("p", env=env)))) == set()

    async def test_that_the_allocated_device_comes_with_stay(self, tmp_path: Path) -> None:
        """NVIDIA's plugin sets these with --gds-enabled and the like."""
        given = {VISIBLE: "GPU-1", "NVIDIA_GDS": "enabled", "NVIDIA_LATER_FEATURE": "enabled"}
        env = tuple(f"{name}={value}" for name, value in given.items())
        write_kubelets(tmp_path, "p", "main", given)
        assert await Node(tmp_path).created(container("p", env=env)) is None
        here = Node(tmp_path / "here", holding(given, PluginOptions()))
        assert await here.created(container("p", env=("NVIDIA_GDS=", f"{VISIBLE}=all"))) == given

    async def test_of_an_exempt_pod_stay(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        for env in ENVIRONMENTS:
            assert await node.created(container("p", env=env), "kube-system") is None

    async def test_that_ask_for_nothing_are_not_touched(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        for env in ((), ("NVIDIA_GDS=enabled",), (f"{VISIBLE}=void", "NVIDIA_GDS=enabled"), (f"{VISIBLE}=none",)):
            assert await node.created(container("p", env=(*env, "NVIDIA_CUDNN_VERSION=9", "CUDA_VERSION="))) is None


def asking(way: str, device: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Annotations of a pod, and the fields of its container main, that ask for a device."""
    match way:
        case "the runtime's":
            return {}, {"annotations": {"cdi.k8s.io/x": device}}
        case "of the container":
            return {"nvidia.cdi.k8s.io/container.main": device, "nvidia.cdi.k8s.io": "a/b=c"}, {}
        case "of the pod":
            return {"nvidia.cdi.k8s.io/pod": device}, {}
    return {"nvidia.cdi.k8s.io": device}, {}


WAYS = ["the runtime's", "of the container", "of the pod", "of all"]


class TestAnnotationsAndMounts:
    async def created(self, node: Node, made: RunningContainer, of_pod: Mapping[str, str], namespace: str = "d") -> Any:
        return await node.backend.create_container(Sandbox("s", "p", namespace, "p", of_pod), made)

    @pytest.mark.parametrize("device", ["nvidia.com/gpu=all", "runtime.nvidia.com/gpu=0", "a/b=c,nvidia.com/gpu=GPU-1"])
    @pytest.mark.parametrize("way", WAYS)
    async def test_an_annotation_of_a_device_not_its_own_is_refused(
        self, tmp_path: Path, way: str, device: str
    ) -> None:
        node = Node(tmp_path)
        of_pod, shown = asking(way, device)
        with pytest.raises(InjectionRefused, match=r"annotation .* was not allocated; remove it"):
            await self.created(node, container("p", **shown), of_pod)
        assert node.counted == ["refused"]
        assert await self.created(node, container("p", **shown), of_pod, "kube-system") is None
        assert await self.created(node, container("p", **shown, cdi_devices=tuple(device.split(","))), of_pod) is None

    async def test_the_annotations_of_the_kubelets_plugin_stay(self, tmp_path: Path) -> None:
        """As NVIDIA's plugin with DEVICE_LIST_STRATEGY=cdi-annotations; a second device in it is not allocated."""
        node, key = Node(tmp_path), "cdi.k8s.io/nvidia-device-plugin_1"
        device = "k8s.device-plugin.nvidia.com/gpu=GPU-1"
        write_kubelets(tmp_path, "p", "main", {}, ContainerEdits(annotations={key: device}))
        made = container("p", env=(f"{VISIBLE}=all", "NVIDIA_GDS=enabled"), annotations={key: device})
        assert (await self.created(node, made, {})).envs == {"NVIDIA_GDS": ""}
        with pytest.raises(InjectionRefused, match="GPU-2"):
            await self.created(node, container("p", annotations={key: device.replace("1", "2")}), {})
        with pytest.raises(InjectionRefused, match=r"gpu=GPU-1"):
            await self.created(node, container("p", "other", annotations={key: device}), {})

    @pytest.mark.parametrize("device", ["all", "0", ""])
    async def test_a_name_without_a_kind_is_a_gpu_to_the_runtime(self, tmp_path: Path, device: str) -> None:
        assert visible_devices([], {"cdi.k8s.io/x": device})
        with pytest.raises(InjectionRefused, match=r"cdi\.k8s\.io/x"):
            await self.created(Node(tmp_path), container("p", annotations={"cdi.k8s.io/x": device}), {})

    async def test_an_annotation_of_another_vendor_or_container_is_nobodys_business(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        made = container("p", annotations={"cdi.k8s.io/x": "example.com/nic=0", "other": "nvidia.com/gpu=all"})
        assert await self.created(node, made, {"nvidia.cdi.k8s.io/container.other": "nvidia.com/gpu=all"}) is None

    @pytest.mark.parametrize(
        ("path", "is_refused"),
        [
            ("/var/run/nvidia-container-devices/all", True),
            ("/var/run//nvidia-container-devices/./GPU-1", True),
            ("/var/run/nvidia-container-devices/imex/0", True),
            ("/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all", True),
            ("/var/run/nvidia-container-devicesall", True),
            ("/var/run/nvidia-container-devices", False),
            ("/var/run/nvidia-container-devices/void", False),
            ("/dev/shm", False),
        ],
    )
    async def test_a_mount_of_dev_null_refuses_the_container(self, tmp_path: Path, path: str, is_refused: bool) -> None:
        mounts = [api_pb2.Mount(destination=path, source="/dev/./null"), api_pb2.Mount(destination="/x", source="/x")]
        shown = created_container(api_pb2.Container(id="c", name="main", mounts=mounts), ())
        assert len(shown.null_mounts) == 1
        node = Node(tmp_path)
        if is_refused:
            with pytest.raises(InjectionRefused, match=r"mount .* was not allocated"):
                await self.created(node, shown, {})
            assert await self.created(node, shown, {}, "kube-system") is None
            # as NVIDIA's plugin with DEVICE_LIST_STRATEGY=volume-mounts
            write_kubelets(tmp_path, "p", "main", {}, ContainerEdits(mounts=(ContainerMount(path, "/dev/null", True),)))
        assert await self.created(node, shown, {}) is None

    async def test_on_a_node_without_the_plugin(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        node.backend.configured(PluginSettings())
        for way in WAYS:
            of_pod, shown = asking(way, "nvidia.com/gpu=all")
            assert await self.created(node, container("p", **shown), of_pod) is None
