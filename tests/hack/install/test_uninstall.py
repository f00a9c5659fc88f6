"""`make uninstall` on clusters of stand-ins: what it removes, what it keeps, and that it names both."""

from pathlib import Path

import pytest

from tests.hack.install import stand_ins
from tests.hack.install.stand_ins import World, installed, node

_KIND = node("lab-control-plane", provider="kind://docker/lab/lab-control-plane")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return stand_ins.world(tmp_path)


def _on_kind(world: World) -> None:
    world.program("kind")
    world.run_by([_KIND])
    installed(world)
    names = ("localhost/nodedevice-agent:dev-1", "localhost/nodedevice-operator:dev-1", "docker.io/library/busybox:1")
    lines = [f"{name} t sha256:{number} 1" for number, name in enumerate(names)]
    world.answer("on-node", "\n".join([*lines, "sha256:abc t sha256:0 1", "sha256:def t sha256:2 1"]))
    cordoned = {"metadata": {"name": "a.gpu"}, "spec": {"cordonedDevices": [{"id": "gpu-0", "reason": "fan"}]}}
    world.answer("nodedevices", {"items": [cordoned]})


@pytest.mark.parametrize("has_helm", [True, False])
def test_an_uninstall_names_what_it_keeps(world: World, has_helm: bool) -> None:
    _on_kind(world)
    if not has_helm:
        (world.folder / "bin/helm").unlink()
    done = world.run("uninstall", "--plan")
    assert not done.error
    for line in (
        "removes the release nodedevice in the namespace nodedevice-system",
        "keeps the kind a.nodedevice.io",
        "keeps NodeDevice a.gpu, cordoned: gpu-0 (fan)",
        "keeps image on lab-control-plane: localhost/nodedevice-agent:dev-1",
        "keeps on lab-control-plane: /var/lib/nodedevice",
        "ALL=1 removes this, too",
    ):
        assert f"uninstall: {line}" in done.output
    assert "busybox" not in done.output
    assert world.changes() == []


def test_all_of_it_asks_first(world: World) -> None:
    _on_kind(world)
    done = world.run("uninstall", "--all")
    assert "no terminal is available to confirm it: add YES=1. Nothing was changed" in done.error
    assert world.changes() == []


def test_images_of_nodes_that_cannot_be_reached_are_named(world: World) -> None:
    world.run_by([node("pi")])
    installed(world)
    done = world.run("uninstall", "--plan")
    assert "images and /var/lib/nodedevice on pi stay: these nodes cannot be reached from here" in done.output


def test_somebody_elses_release_is_not_ended(world: World) -> None:
    world.run_by([_KIND])
    world.answers(stand_ins.OWNED_BY_ANOTHER)
    done = world.run("uninstall", "--all", "--yes")
    assert "make uninstall NAMESPACE=b RELEASE=theirs" in done.error
    assert world.changes() == []


def test_images_and_their_ids_go_and_no_others(world: World) -> None:
    """What is left of an install that was removed without its images."""
    _on_kind(world)
    world.answers({"releases": [], "workloads": {"items": []}})
    done = world.run("uninstall", "--all", "--yes")
    assert not done.error
    removed = [line for line in world.calls("docker") if " images rm " in line]
    inside = "docker exec lab-control-plane"
    assert removed == [
        f"{inside} ctr --namespace k8s.io images rm --sync localhost/nodedevice-agent:dev-1 "
        "localhost/nodedevice-operator:dev-1 sha256:abc"
    ]
    assert f"{inside} rm -rf --one-file-system /var/lib/nodedevice" in world.calls("docker")
    assert any(line.startswith("kubectl ") and " delete crds a.nodedevice.io " in line for line in world.calls())
