"""What the checker's word is worth on a node before anything of ours is on it, and upstream's sample plugin with the agent.

Only its directory is the agent's instead of the kubelet's.
"""

from collections.abc import Mapping

import pytest

from tests.cluster.build.binaries import find
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.fakes.third_party import sample_plugin


def test_without_a_device_none_can_be_opened(bare_node: NodeUnderTest) -> None:
    """What makes the checker's word worth something: a device that was not given is refused, by path and by number."""
    numbers = [file.number for kind in bare_node.kinds.values() for file in kind.files.values()]
    checks = [argument for number in numbers for argument in ("-number", number)]
    bare_node.run(pod("poor", [container("main", checks=checks)]))
    seen = bare_node.seen("poor")
    assert [seen.modes(number) for number in numbers] == [""] * len(numbers)
    assert not any("given" in path for path in seen.nodes)
    bare_node.delete("poor")


# What a DaemonSet does with a hostPath: the agent's directory, at the path that the plugin insists on.
_SCRIPT = 'mount --bind "$1" /var/lib/kubelet/device-plugins; shift; exec /usr/bin/env "$@"'


@pytest.mark.parametrize("settings", [{}, {"CDI_ENABLED": "1"}], ids=["plain", "by CDI"])
def test_upstreams_sample_plugin_beside_the_kubelet(our_node: NodeUnderTest, settings: Mapping[str, str]) -> None:
    program = find(["sample-device-plugin"])["sample-device-plugin"]
    environment = [f"{name}={value}" for name, value in settings.items()]
    script = ["/bin/sh", "-e", "-c", _SCRIPT, "sh", our_node.plugin_dir, *environment, str(program)]
    plugin = our_node.node.process("sample-device-plugin", ["/usr/bin/unshare", "--mount", *script])
    plugin.start()
    try:
        our_node.wait_allocatable(sample_plugin.RESOURCE, len(sample_plugin.DEVICES))
        our_node.run(pod("sample", [container("main", {sample_plugin.RESOURCE: 1})]))
        seen = our_node.seen("sample")
        got = [path for path in (*seen.nodes, *seen.mounts) if path.rpartition("/")[2] in sample_plugin.DEVICES]
        assert got, "nothing of the plugin's is in the container"
        our_node.delete("sample")
    finally:
        plugin.kill()
        # a pod that is placed before the Node has heard of it would be refused for good where the kubelet allocates
        our_node.wait_allocatable(sample_plugin.RESOURCE, 0)
