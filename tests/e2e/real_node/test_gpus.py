"""What a running container has of GPUs that the nvml plugin serves."""

from pathlib import Path
from typing import Any

from nodedevice_api.names import Reason

from tests.e2e.real_node.gpus import gpus
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod
from tests.e2e.real_node.pods_on_node import OURS

GPU, UNITS = "nvidia.com/gpu", "aliyun.com/gpu-mem"
# what every container with a GPU has of the driver
COMMON = ("/dev/nvidiactl", "/dev/nvidia-uvm")
VGPU = f"{OURS}/vgpu"
LIMITS: dict[str, Any] = {
    "library": f"{VGPU}/libvgpu.so",
    "preload": f"{VGPU}/ld.so.preload",
    "directory": f"{VGPU}/containers",
    "lock": f"{OURS}/vgpulock",
}
SHARING = [{"memory": {"unit": "1Gi", "limits": LIMITS}}]


def test_a_whole_gpu(our_node: NodeUnderTest, tmp_path: Path) -> None:
    """Its device files can be opened, and those of another GPU neither by path nor by number; without a request, none."""
    with gpus(our_node, tmp_path, handOver=["env", "deviceNodes"]) as found:
        our_node.wait_allocatable(GPU, 2)
        our_node.run(pod("gpu", [container("has", {GPU: 1}, found.checks), container("none", None, found.checks)]))
        has, none = our_node.seen("gpu", "has"), our_node.seen("gpu", "none")
        index = found.uuids.index(has.env["NVIDIA_VISIBLE_DEVICES"])
        given, other = f"/dev/nvidia{index}", f"/dev/nvidia{1 - index}"
        expected = {given: "rw", other: "", **dict.fromkeys(COMMON, "rw")}
        assert {path: has.modes(path) for path in found.numbers} == expected
        assert {path: has.modes(number) for path, number in found.numbers.items()} == expected
        for path in (given, *COMMON):
            assert has.nodes[path].replace(" ", ":") == found.numbers[path]
        assert "NVIDIA_VISIBLE_DEVICES" not in none.env
        assert not {path for path in none.nodes if "nvidia" in path}
        assert not any(none.modes(checked) for checked in none.opened)
        our_node.delete("gpu")


def test_units_of_memory(nri_node: NodeUnderTest, tmp_path: Path) -> None:
    """Four pods with 16 of 78 units share a GPU. A fifth fits on neither GPU, though both together have enough, until one ends."""
    host = _library(nri_node)
    with gpus(nri_node, tmp_path, "h100-pair", sharing=SHARING):
        nri_node.wait_allocatable(UNITS, 2 * 78)
        nri_node.run(_with_units("large", 64))
        four = [f"p{number}" for number in range(4)]
        for name in four:
            nri_node.run(_with_units(name, 16))
            _check_limits(nri_node, name)
        (uuid,) = {nri_node.seen(name).env["NVIDIA_VISIBLE_DEVICES"] for name in four}
        assert uuid != nri_node.seen("large").env["NVIDIA_VISIBLE_DEVICES"]
        uid = nri_node.create(_with_units("fifth", 16)).metadata.uid
        why = f"no device has 16 of {UNITS} free; the most is 14"
        shown = {uid: (Reason.NO_DEVICE_FITS, why)}
        nri_node.until(lambda: _waiting(nri_node) == shown, "the NodeDevice shows why it waits")
        nri_node.wait_event("fifth", why)
        assert not nri_node.starts("fifth")
        nri_node.delete("p0")
        nri_node.wait_running("fifth")
        _check_limits(nri_node, "fifth")
        nri_node.delete("large", "fifth", *four[1:])
        nri_node.until(lambda: not list((host / "containers").iterdir()), "all directories are removed")


def test_units_that_a_kubelet_gives(kubelet_node: NodeUnderTest, tmp_path: Path) -> None:
    """Those of a container are of one GPU all the same; it has limits, but no directory, as a kubelet shows the plugin no pod."""
    _library(kubelet_node)
    with gpus(kubelet_node, tmp_path, "h100-pair", sharing=SHARING) as found:
        kubelet_node.wait_allocatable(UNITS, 2 * 78)
        for name in ("p0", "p1"):
            kubelet_node.run(_with_units(name, 48))
        all_seen = [kubelet_node.seen(name) for name in ("p0", "p1")]
        assert {seen.env["NVIDIA_VISIBLE_DEVICES"] for seen in all_seen} == set(found.uuids)
        for seen in all_seen:
            assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "49152m"
            assert seen.mounts[LIMITS["library"]] == "ro"
            assert "/tmp/vgpu" not in seen.mounts
        kubelet_node.delete("p0", "p1")


def _library(of: NodeUnderTest) -> Path:
    """Put the library's files on the node. Returns their directory, as seen from here."""
    host = of.node.outside(VGPU)
    host.mkdir(parents=True)
    for name in ("libvgpu.so", "ld.so.preload"):
        (host / name).write_text("")
    return host


def _with_units(name: str, count: int) -> Json:
    return pod(name, [container("main", {UNITS: count})])


def _check_limits(of: NodeUnderTest, name: str) -> None:
    """What a container with 16 units has for the library that enforces them."""
    seen = of.seen(name)
    assert seen.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "16384m"
    assert (seen.env["CUDA_DEVICE_SM_LIMIT"], seen.env["CUDA_OVERSUBSCRIBE"]) == ("0", "true")
    assert Path(seen.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]).parent == Path("/tmp/vgpu")
    expected = {LIMITS["library"]: "ro", "/etc/ld.so.preload": "ro", "/tmp/vgpu": "rw", LIMITS["lock"]: "rw"}
    assert expected.items() <= seen.mounts.items()
    uid = of.pod(name)["metadata"]["uid"]
    assert of.node.outside(f"{LIMITS['directory']}/{uid}_main").is_dir()


def _waiting(of: NodeUnderTest) -> dict[str, tuple[str, str]]:
    """Reason and message by pod UID."""
    return {each["podUID"]: (each["reason"], each["message"]) for each in of.node_device(UNITS).get("waiting", ())}
