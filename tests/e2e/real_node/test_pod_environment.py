"""What the environment of a pod or an image does to the GPUs that a container was given: nothing with NRI, a lot without."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodedevice_agent.plugins.nvml.environment import TABLE, unset_value
from nodedevice_api.names import Condition

from tests.cluster.api import ConfigMap, Object
from tests.cluster.build.images import CUDA_IMAGE
from tests.e2e.real_node.gpus import Gpus, gpus
from tests.e2e.real_node.node_under_test import NRI, NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod

GPU = "nvidia.com/gpu"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
# the table's names, and variables that stay the pod's
OVERRULED = [name.replace("_n", "_0").replace("*", "CONFIG") for name, _ in TABLE]
OWN = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def with_env(made: Json, env: dict[str, str]) -> Json:
    made["env"] += [{"name": name, "value": value} for name, value in env.items()]
    return made


def cuda(name: str, limits: dict[str, int] | None = None, **more: Any) -> Json:
    """Of an image that asks for all GPUs."""
    return container(name, limits, image=CUDA_IMAGE, **more)


@contextmanager
def config_map(of: NodeUnderTest, data: dict[str, str]) -> Iterator[None]:
    client = of.control_plane.client
    made = ConfigMap(metadata=Object(name="gpus", namespace=of.namespace), data=data)
    client.create(made)
    try:
        yield
    finally:
        client.delete(ConfigMap, "gpus", namespace=of.namespace)


def test_nothing_of_it_counts(nri_node: NodeUnderTest, tmp_path: Path) -> None:
    """Of the pod's spec, a ConfigMap and the image: the answer counts, and what is the pod's stays."""
    mine = dict.fromkeys(OVERRULED, "1") | OWN
    from_map = [{"configMapRef": {"name": "gpus"}}]
    with config_map(nri_node, mine), gpus(nri_node, tmp_path, handOver=["env"]) as found:
        nri_node.wait_allocatable(GPU, 2)
        nri_node.run(pod("spec", [with_env(container("main", {GPU: 1}), mine), cuda("image")]))
        privileged = cuda("privileged", securityContext={"privileged": True})
        nri_node.run(pod("map", [container("main", {GPU: 1}, envFrom=from_map), privileged]))
        seen = {name: nri_node.seen(name, "main").env for name in ("spec", "map")}
        assert {env[VISIBLE] for env in seen.values()} == set(found.uuids)
        for env in seen.values():
            assert {name: env[name] for name in OVERRULED if name != VISIBLE} == {
                name: unset_value(name) for name in OVERRULED if name != VISIBLE
            }
            assert {name: env[name] for name in OWN} == OWN
        for name, without in (("spec", "image"), ("map", "privileged")):
            assert nri_node.seen(name, without).env[VISIBLE] == "void"
        nri_node.delete("spec", "map")


def test_of_pod_and_image_at_once_is_refused(nri_node: NodeUnderTest, tmp_path: Path) -> None:
    """The runtime would keep the pod's value, whatever a plugin of NRI answers."""
    with gpus(nri_node, tmp_path, handOver=["env"]):
        nri_node.wait_allocatable(GPU, 2)
        for name, limits in (("has", {GPU: 1}), ("none", None)):
            nri_node.create(pod(name, [with_env(cuda("main", limits), {VISIBLE: "all"})]))
            nri_node.wait_event(name, "from the pod's spec")
            assert not nri_node.starts(name)
        nri_node.run(pod("wants-none", [with_env(cuda("main"), {VISIBLE: "none"})]))
        nri_node.delete("has", "none", "wants-none")


def test_annotations_and_mounts_by_which_nvidias_runtime_adds_devices(nri_node: NodeUnderTest, tmp_path: Path) -> None:
    """As the runtime shows them to a plugin of NRI when it creates the container."""
    path = "/var/run/nvidia-container-devices/all"
    with gpus(nri_node, tmp_path, handOver=["env"], exempt=[f"{nri_node.namespace}/monitor-*"]):
        nri_node.wait_allocatable(GPU, 2)
        for name in ("asks-by-mount", "monitor-mount"):
            asking = container("main")
            asking["volumeMounts"].append({"name": "null", "mountPath": path})
            nri_node.create(pod(name, [asking], volumes=[{"name": "null", "hostPath": {"path": "/dev/null"}}]))
        annotated = pod("asks-by-annotation", [container("main")])
        annotated["metadata"]["annotations"] = {"nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=all"}
        nri_node.create(annotated)
        for name, words in (("asks-by-mount", path), ("asks-by-annotation", "nvidia.com/gpu=all")):
            nri_node.wait_event(name, words)
            nri_node.wait_event(name, "was not allocated")
            assert not nri_node.starts(name)
        nri_node.until(lambda: bool(nri_node.starts("monitor-mount")), "an exempt pod starts")
        nri_node.delete("asks-by-mount", "asks-by-annotation", "monitor-mount")


def test_who_keeps_it(nri_node: NodeUnderTest, tmp_path: Path) -> None:
    """An exempt pod, which the NodeDevice names; and a container that starts while the agent is away."""
    with gpus(nri_node, tmp_path, exempt=[f"{nri_node.namespace}/monitor-*"]):
        nri_node.wait_allocatable(GPU, 2)
        nri_node.run(pod("monitor-1", [cuda("main")]))
        nri_node.run(pod("other", [cuda("main")], init=[cuda("first", stay=False)]))
        assert nri_node.seen("monitor-1", "main").env[VISIBLE] == "all"
        assert {nri_node.seen("other", name).env[VISIBLE] for name in ("main", "first")} == {"void"}
        named = f"{nri_node.namespace}/monitor-1"
        nri_node.until(lambda: named in _injectable(nri_node), "the NodeDevice names the exempt pod")
        nri_node.agent.kill()
        nri_node.run(pod("unseen", [cuda("main")]))
        assert nri_node.seen("unseen", "main").env[VISIBLE] == "all"
        nri_node.start_agent()
        nri_node.delete("monitor-1", "other", "unseen")


def test_with_a_kubelet_the_pods_own_counts(kubelet_node: NodeUnderTest, tmp_path: Path) -> None:
    with gpus(kubelet_node, tmp_path):
        kubelet_node.wait_allocatable(GPU, 2)
        kubelet_node.run(pod("p", [with_env(container("main", {GPU: 1}), {VISIBLE: "all"}), cuda("none")]))
        assert {kubelet_node.seen("p", name).env[VISIBLE] for name in ("main", "none")} == {"all"}
        said = "override its allocation"
        kubelet_node.until(lambda: said in _injectable(kubelet_node), "the NodeDevice says so")
        kubelet_node.delete("p")


def test_auto_uses_the_nodes_specification(our_node: NodeUnderTest, tmp_path: Path) -> None:
    """As nvidia-ctk writes it: with the variable that keeps NVIDIA's runtime from giving more."""
    file = our_node.node.outside("/run/cdi/gpus.json")
    with gpus(our_node, tmp_path) as found:
        our_node.wait_allocatable(GPU, 2)
        our_node.run(pod("before", [cuda("main", {GPU: 1})]))
        assert our_node.seen("before", "main").env[VISIBLE] in found.uuids
        file.write_text(_specification(found))
        try:
            our_node.run(pod("after", [with_env(cuda("main", {GPU: 1}), {VISIBLE: "all"})]))
            env = our_node.seen("after", "main").env
            assert (env[VISIBLE], env["BY_CDI"] in found.uuids) == ("void", True)
            # a kubelet's runtime may ignore CDI devices
            way = "cdi" if our_node.delivery == NRI else "cdi,env"
            our_node.until(lambda: _way(our_node) == {way}, "the NodeDevice shows the way")
        finally:
            file.unlink()
        our_node.delete("before", "after")


def _specification(of: Gpus) -> str:
    devices = [{"name": uuid, "containerEdits": {"env": [f"BY_CDI={uuid}"]}} for uuid in of.uuids]
    everybodys = {"env": [f"{VISIBLE}=void"]}
    return json.dumps({"cdiVersion": "0.6.0", "kind": GPU, "devices": devices, "containerEdits": everybodys})


def _way(of: NodeUnderTest) -> set[str]:
    return {device["attributes"]["handOver"] for device in of.node_device(GPU)["devices"]}


def _injectable(of: NodeUnderTest) -> str:
    return str(of.condition(GPU, Condition.INJECTABLE)["message"])
