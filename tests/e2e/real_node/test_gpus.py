"""What a running container has of GPUs that the nvml plugin serves."""

from pathlib import Path

from tests.e2e.real_node.gpus import gpus
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

GPU = "nvidia.com/gpu"
CONTROL = "/dev/nvidiactl"


def test_a_whole_gpu(our_node: NodeUnderTest, tmp_path: Path) -> None:
    """Its device files can be opened, and those of another GPU neither by path nor by number; without a request, none."""
    with gpus(our_node, tmp_path, handOver=["env", "deviceNodes"]) as found:
        our_node.wait_allocatable(GPU, 2)
        our_node.run(pod("gpu", [container("has", {GPU: 1}, found.checks), container("none", None, found.checks)]))
        has, none = our_node.seen("gpu", "has"), our_node.seen("gpu", "none")
        given, other = _paths(found.uuids.index(has.env["NVIDIA_VISIBLE_DEVICES"]))
        expected = {given: "rw", CONTROL: "rw", other: ""}
        assert {path: has.modes(path) for path in found.numbers} == expected
        assert {path: has.modes(number) for path, number in found.numbers.items()} == expected
        for path in (given, CONTROL):
            assert has.nodes[path].replace(" ", ":") == found.numbers[path]
        assert "NVIDIA_VISIBLE_DEVICES" not in none.env
        assert not {path for path in none.nodes if "nvidia" in path}
        assert not any(none.modes(checked) for checked in none.opened)
        our_node.delete("gpu")


def _paths(index: int) -> tuple[str, str]:
    """The device file of this GPU of two, and of the other."""
    return f"/dev/nvidia{index}", f"/dev/nvidia{1 - index}"
