"""From a clone to a real node and back: with the images brought to its containerd, and by a registry on this machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes.processes import reserved_ports
from tests.e2e.from_clone.typed import Clone
from tests.hack.publish.services import Service, registry

_DEVICE = "node-1.example.com.fuse"
_STATE = "/var/lib/nodedevice"


@pytest.fixture
def to(tmp_path: Path) -> Iterator[Service]:
    """A registry that nobody has to log in to."""
    with reserved_ports(1) as (port,), registry(tmp_path, port, with_user=False) as service:
        yield service


@pytest.fixture(autouse=True)
def nothing_is_left(clone: Clone) -> Iterator[None]:
    """Afterwards the cluster and the node have what they had before, and nothing of ours."""
    for namespace in ("nodedevice-system", "elsewhere"):
        # of a test that failed before
        clone.typed("uninstall", "--all", "--yes", "--namespace", namespace)
    objects, images = clone.versions().keys(), clone.images()
    yield
    assert clone.versions().keys() - objects == set()
    assert clone.images() == images
    assert not clone.node.outside(_STATE).exists()
    assert clone.resources() == set()


def test_install_again_and_back(clone: Clone) -> None:
    printed = clone.done("install")
    assert f"{_DEVICE} is published, 1 of 1 agents run" in printed
    assert "images import`, into node-1 on this machine" in printed
    kubectl = clone.control_plane.kubectl
    running = kubectl("get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}").split()
    assert {image.partition("@")[0] for image in running} == {
        "localhost/nodedevice-agent",
        "localhost/nodedevice-operator",
    }
    # typed again: nothing at all is written but what the programs themselves write
    clone.settle()
    versions = clone.versions()
    assert "nothing to change" in clone.done("install")
    assert {name for name, version in clone.versions().items() if versions.get(name) != version} <= {"Node /node-1"}
    # what somebody deleted comes back
    kubectl("delete", "clusterrole", "nodedevice-agent")
    assert f"{_DEVICE} is published" in clone.done("install")
    assert kubectl("get", "clusterrole", "nodedevice-agent", "-o", "name")
    # cordoned by an administrator
    patch = '{"spec":{"cordonedDevices":[{"id":"x","reason":"fan"}]}}'
    kubectl("patch", "nodedevice", _DEVICE, "--type=merge", "-p", patch)
    printed = clone.done("uninstall")
    assert f"keeps NodeDevice {_DEVICE}, cordoned: x (fan)" in printed
    assert "keeps image on node-1: localhost/nodedevice-agent@sha256:" in printed
    assert clone.resources() == set()
    assert kubectl("get", "nodedevices", "-o", "name").split() == [f"nodedevice.nodedevice.io/{_DEVICE}"]
    # and only with a word for it the rest
    refused = clone.typed("uninstall", "--all")
    assert refused.returncode == 1
    assert "add YES=1" in refused.stderr
    assert kubectl("get", "nodedevices", "-o", "name")
    clone.done("uninstall", "--all", "--yes")
    assert "nothing of nodedevice is in this cluster" in clone.done("uninstall", "--all", "--yes")


def test_by_a_registry(clone: Clone, to: Service) -> None:
    prefix = f"{to.address}/team"
    printed = clone.done("install", "--registry", prefix)
    assert f"to the nodes by the registry {prefix}" in printed
    assert f"{_DEVICE} is published" in printed
    pods = clone.control_plane.kubectl(
        "get", "pods", "-A", "-o", "jsonpath={.items[*].spec.containers[*].image}"
    ).split()
    assert all(image.startswith(f"{prefix}/nodedevice-") and "@sha256:" in image for image in pods)
    assert "nothing to change" in clone.done("install", "--registry", prefix)
    # the other way afterwards: the kubelet has pulled what is brought to it now, under another name
    assert f"{_DEVICE} is published" in clone.done("install")
    clone.done("uninstall", "--all", "--yes")


def test_an_install_that_never_ran_is_taken_back(clone: Clone, to: Service) -> None:
    """No operator ever runs, and so would no hook of the chart's."""
    prefix = f"{to.address}/team"
    values = to.folder / "values.json"
    values.write_text('{"operator": {"nodeSelector": {"no-node": "has-it"}}}')
    never = ("--registry", prefix, "--values", str(values), "--namespace", "elsewhere", "--timeout-seconds", "10")
    failed = clone.typed("install", *never)
    assert failed.returncode == 1
    assert "no NodeDevice within 10 s (the operator has no node: " in failed.stderr
    # a second release is named, and nothing is done
    refused = clone.typed("install")
    assert refused.returncode == 1
    assert "the release nodedevice in the namespace elsewhere" in refused.stderr
    clone.done("uninstall", "--all", "--yes", "--namespace", "elsewhere")
