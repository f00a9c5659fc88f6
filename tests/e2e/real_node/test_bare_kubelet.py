"""What the checker's word is worth on a node before anything of ours is on it."""

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod


def test_without_a_device_none_can_be_opened(bare_node: NodeUnderTest) -> None:
    """What makes the checker's word worth something: a device that was not given is refused, by path and by number."""
    numbers = [file.number for kind in bare_node.kinds.values() for file in kind.files.values()]
    checks = [argument for number in numbers for argument in ("-number", number)]
    bare_node.run(pod("poor", [container("main", checks=checks)]))
    seen = bare_node.seen("poor")
    assert [seen.modes(number) for number in numbers] == [""] * len(numbers)
    assert not any("given" in path for path in seen.nodes)
    bare_node.delete("poor")
