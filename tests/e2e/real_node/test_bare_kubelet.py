"""The node itself, before anything of ours is on it: what the rest of these tests stands on.

Upstream's sample plugin runs on it as it is, and then beside ours: only its directory is the agent's instead of the kubelet's.
"""

from collections.abc import Mapping

import pytest

from tests.cluster.build.binaries import find
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.fakes.third_party import sample_plugin


def test_a_pod_runs_and_can_be_inspected(bare_node: NodeUnderTest) -> None:
    bare_node.run(pod("plain", [container("main")]))
    kubectl = bare_node.control_plane.kubectl
    assert '"env":' in kubectl("logs", "plain", "-n", bare_node.namespace)
    assert kubectl("exec", "plain", "-n", bare_node.namespace, "--", "echo", "hello") == "hello\n"
    bare_node.delete("plain")


def test_without_a_device_none_can_be_opened(bare_node: NodeUnderTest) -> None:
    """What makes the checker's word worth something: a device that was not given is refused, by path and by number."""
    numbers = [file.number for kind in bare_node.kinds.values() for file in kind.files.values()]
    checks = [argument for number in numbers for argument in ("-number", number)]
    bare_node.run(pod("poor", [container("main", checks=checks)]))
    seen = bare_node.seen("poor")
    assert [seen.modes(number) for number in numbers] == [""] * len(numbers)
    assert not any("given" in path for path in seen.nodes)
    bare_node.delete("poor")


def test_upstreams_sample_plugin(bare_node: NodeUnderTest) -> None:
    program = find(["sample-device-plugin"])["sample-device-plugin"]
    plugin = bare_node.node.process("sample-device-plugin", [str(program)])
    plugin.start()
    try:
        bare_node.wait_allocatable(sample_plugin.RESOURCE, len(sample_plugin.DEVICES))
        bare_node.run(pod("sample", [container("main", {sample_plugin.RESOURCE: 1})]))
        assert bare_node.seen("sample").mounts.keys() & {f"/tmp/{device}" for device in sample_plugin.DEVICES}
        bare_node.delete("sample")
    finally:
        plugin.kill()


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
