"""A container has what its plugin gave, with the permitted modes and nothing else; the same on every path by which it comes.

A device is free when the container that had it has ended, not when the API has forgotten the pod.
"""

import os
import signal
from collections.abc import Mapping

import pytest

from tests.cluster.build.binaries import find
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Seen, container, pod
from tests.fakes.third_party import sample_plugin


@pytest.mark.kubelet("scenario 27")
def test_nodes_environment_and_mounts(any_node: NodeUnderTest) -> None:
    rw = any_node.kinds["rw"]
    any_node.run(pod("whole", [container("main", {rw.resource: 2}, [*_checks(any_node)])]))
    seen = any_node.seen("whole")
    ids = seen.env[rw.env].split(",")
    assert len(set(ids)) == 2
    assert {path for path in seen.nodes if path.startswith("/dev/given/")} == {rw.path_of(i) for i in ids}
    for device_id in ids:
        kind, _, number = rw.files[device_id].number.partition(":")
        assert seen.nodes[rw.path_of(device_id)] == f"{kind} {number}"
        assert seen.mounts[f"/given/{device_id}"] == "ro"
    assert _openable(any_node, seen) == {rw.files[i].number: "rw" for i in ids}
    any_node.delete("whole")


def test_only_the_permitted_modes(any_node: NodeUnderTest) -> None:
    """A device that is given only to be read cannot be written, by a node of the container's own neither."""
    ro = any_node.kinds["ro"]
    checks = [*_checks(any_node), "-open", ro.path_of("ro-0")]
    any_node.run(pod("reader", [container("main", {ro.resource: 1}, checks)]))
    seen = any_node.seen("reader")
    assert seen.modes(ro.path_of("ro-0")) == "r"
    assert _openable(any_node, seen) == {ro.files["ro-0"].number: "r"}
    any_node.delete("reader")


def test_what_the_pod_sets_itself(any_node: NodeUnderTest) -> None:
    """An environment variable and a volume of the same name and place as the plugin's, and the rights of a privileged container."""
    ro = any_node.kinds["ro"]
    checks, at = ["-open", ro.path_of("ro-0")], "/given/ro-0"
    main = container("main", {ro.resource: 1}, checks, securityContext={"privileged": True})
    main["env"].append({"name": ro.env, "value": "the-pods"})
    main["volumeMounts"].append({"name": "own", "mountPath": f"{at}/"})
    # a file, as the plugin's is
    own = {"name": "own", "hostPath": {"path": "/etc/hostname", "type": "File"}}
    any_node.run(pod("own", [main], volumes=[own]))
    seen = any_node.seen("own")
    assert (seen.env[ro.env], seen.mounts[at], seen.modes(ro.path_of("ro-0"))) == ("the-pods", "rw", "rw")
    any_node.delete("own")


@pytest.mark.kubelet("scenario 84")
def test_by_cdi(any_node: NodeUnderTest) -> None:
    cdi = any_node.kinds["cdi"]
    checks = [*_checks(any_node), "-open", cdi.path_of("cdi-0")]
    any_node.run(pod("cdi", [container("main", {cdi.resource: 1}, checks)]))
    seen = any_node.seen("cdi")
    assert seen.modes(cdi.path_of("cdi-0")) == "rw"
    assert seen.env["CDI_CDI_0"] == "yes"
    assert _openable(any_node, seen) == {cdi.files["cdi-0"].number: "rw"}
    any_node.delete("cdi")


def test_each_container_has_its_own(any_node: NodeUnderTest) -> None:
    rw, ro = any_node.kinds["rw"], any_node.kinds["ro"]
    checks = _checks(any_node)
    containers = [
        container("a", {rw.resource: 1}, checks),
        container("b", {rw.resource: 1, ro.resource: 1}, checks),
        container("c", None, checks),
    ]
    any_node.run(pod("three", containers))
    a, b, c = (any_node.seen("three", name) for name in "abc")
    assert a.env[rw.env] != b.env[rw.env]
    assert _openable(any_node, a) == {rw.files[a.env[rw.env]].number: "rw"}
    assert _openable(any_node, b) == {rw.files[b.env[rw.env]].number: "rw", ro.files["ro-0"].number: "r"}
    assert _openable(any_node, c) == {}
    any_node.delete("three")


@pytest.mark.kubelet("behaviour 31")
def test_an_init_containers_devices_are_used_again(any_node: NodeUnderTest) -> None:
    """Three devices, of which the init container asks all: what comes after it gets them, too."""
    rw = any_node.kinds["rw"]
    init = [container("before", {rw.resource: 3}, stay=False)]
    any_node.run(pod("reuse", [container("main", {rw.resource: 2})], init))
    assert len(any_node.seen("reuse", "before").env[rw.env].split(",")) == 3
    assert len(any_node.seen("reuse").env[rw.env].split(",")) == 2
    assert not any_node.seen("reuse").shared
    any_node.delete("reuse")


@pytest.mark.kubelet("behaviour 32", "scenario 92")
def test_a_sidecar_keeps_its_device(any_node: NodeUnderTest) -> None:
    rw = any_node.kinds["rw"]
    init = [
        container("sidecar", {rw.resource: 1}, restartPolicy="Always"),
        container("before", {rw.resource: 2}, stay=False),
    ]
    any_node.run(pod("side", [container("main", {rw.resource: 2})], init))
    sidecar, main = any_node.seen("side", "sidecar"), any_node.seen("side")
    assert not set(sidecar.env[rw.env].split(",")) & set(main.env[rw.env].split(","))
    assert not main.shared
    any_node.delete("side")


@pytest.mark.kubelet("scenario 85")
def test_a_container_that_starts_again_has_the_same(any_node: NodeUnderTest) -> None:
    rw = any_node.kinds["rw"]
    any_node.run(pod("again", [container("main", {rw.resource: 1})]))
    os.kill(any_node.pid_of("again", "main"), signal.SIGTERM)
    any_node.wait_starts("again", 2)
    first, second = any_node.starts("again")
    assert first.env[rw.env] == second.env[rw.env]
    assert not second.shared
    any_node.delete("again")


def test_annotations_of_the_plugin(nri_node: NodeUnderTest) -> None:
    """Only a runtime shows them; the kubelet's way is its own business."""
    rw = nri_node.kinds["rw"]
    nri_node.run(pod("annotated", [container("main", {rw.resource: 1})]))
    annotations = nri_node.node.container_specification(nri_node.namespace, "annotated", "main")["annotations"]
    assert annotations["e2e.example.com/rw"] == nri_node.seen("annotated").env[rw.env]
    nri_node.delete("annotated")


def _numbers(of: NodeUnderTest) -> list[str]:
    """Of every plugin's devices."""
    return [file.number for kind in of.kinds.values() for file in kind.files.values()]


def _checks(of: NodeUnderTest) -> list[str]:
    """Try every device that any plugin has, by number."""
    return [argument for number in _numbers(of) for argument in ("-number", number)]


def _openable(of: NodeUnderTest, seen: Seen) -> dict[str, str]:
    """Modes by number, of every plugin's devices that could be opened in any way."""
    return {number: modes for number in _numbers(of) if (modes := seen.modes(number))}


def test_force_deleted_and_the_next_waits_for_the_same(nri_node: NodeUnderTest) -> None:
    """The API forgets at once; the process, which does not listen to SIGTERM, lives on for two seconds."""
    rw = nri_node.kinds["rw"]
    for _ in range(3):
        nri_node.run(pod("deaf", [container("main", {rw.resource: 3}, ["-deaf"])]))
        assert not nri_node.seen("deaf").shared
        nri_node.create(pod("next", [container("main", {rw.resource: 3})]))
        nri_node.delete("deaf", force=True)
        nri_node.wait_running_nudged("next")
        assert not nri_node.seen("next").shared
        nri_node.delete("next")


def test_what_is_being_given_back_is_not_advertised(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    nri_node.run(pod("deaf", [container("main", {rw.resource: 2}, ["-deaf"])]))
    with nri_node.watched(rw.resource) as seen:
        nri_node.delete("deaf", force=True)
        nri_node.wait_numbers(rw.resource, releasing=0, available=3)
    releasing = [status for status in seen if status.get("releasing")]
    assert releasing, "nothing was ever shown as releasing"
    assert all(status["releasing"] == 2 and status["available"] == 1 for status in releasing)
    nri_node.wait_allocatable(rw.resource, 3)


# What a DaemonSet does with a hostPath: the agent's directory, at the path that the plugin insists on.
_SCRIPT = 'mount --bind "$1" /var/lib/kubelet/device-plugins; shift; exec /usr/bin/env "$@"'


@pytest.mark.parametrize("settings", [{}, {"CDI_ENABLED": "1"}], ids=["plain", "by CDI"])
def test_upstreams_sample_plugin_beside_the_kubelet(our_node: NodeUnderTest, settings: Mapping[str, str]) -> None:
    """Only its directory is the agent's instead of the kubelet's."""
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
