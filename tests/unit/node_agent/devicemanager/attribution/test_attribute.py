"""Allocations from the kubelet's checkpoint, its pod resources and the API's pods."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import (
    Attributed,
    KubeletState,
    PodResourcesRow,
    attribute,
    changed_pods,
)
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_api.names import DELIVERY_NRI

from tests.unit.node_agent.devicemanager.pods import GPU, HASH, NIC, pod
from tests.unit.node_agent.devicemanager.scenario import held_by

Entries = tuple[Allocation, ...]
Rows = tuple[PodResourcesRow, ...]
Names = tuple[str, ...]
Held = dict[str, Names]

ONE, TWO = held_by("one", "d0"), held_by("two", "d1", "d2")
SIDE, EARLY = held_by("one", "d3", container="side"), held_by("early", "d3")


def row(name: str, *device_ids: str, container: str = "main", resource_name: str = GPU) -> PodResourcesRow:
    return PodResourcesRow("default", name, container, resource_name, device_ids)


def resources(*names: str) -> dict[str, Resource]:
    """Known ones, each with d0 to d3 on NUMA node 1."""
    found = {name: Resource(name) for name in names or (GPU,)}
    for resource in found.values():
        resource.connect(1, PluginOptions())
        resource.list(1, accept(Device(f"d{index}", numa_nodes=(1,)) for index in range(4)), 0.0)
    return found


def attributed(
    entries: Entries | None, rows: Rows | None = (), pods: Names = (), ended: Names = (), before: Entries = ()
) -> Attributed:
    return attribute(KubeletState(entries, rows), {uid: pod(uid, gpu=1) for uid in pods}, ended, resources(), before)


@pytest.mark.parametrize(
    ("entries", "rows", "pods", "ended", "expected"),
    [
        pytest.param((ONE, TWO), (), ("one", "two"), (), {"one": ("d0",), "two": ("d1", "d2")}, id="both go on"),
        pytest.param((ONE, TWO), (), ("two",), (), {"two": ("d1", "d2")}, id="one ended long ago"),
        pytest.param((ONE,), (row("one", "d0"),), (), ("one",), {}, id="ended, and the kubelet does not know yet"),
        pytest.param((ONE,), (row("one", "d0"),), (), (), {"one": ("d0",)}, id="the API does not show it yet"),
        pytest.param((ONE,), (row("x", "d1"),), (), (), {}, id="its devices are another's by now"),
        pytest.param((ONE,), (row("one", "d0", container="other"),), (), (), {}, id="another container's devices"),
        pytest.param((SIDE,), (row("one", "d3", container="side"),), (), (), {"one": ("d3",)}, id="by container name"),
        pytest.param((ONE,), None, ("two",), (), {}, id="no response names it"),
        pytest.param((ONE,), None, (), (), {"one": ("d0",)}, id="neither names nor pods yet: as before"),
        pytest.param((ONE,), None, (), ("one",), {}, id="neither names nor pods yet, and it has ended"),
        pytest.param(None, (row("one", "d0"),), (), (), {"one": ("d0",)}, id="names alone: as before"),
        pytest.param(None, (), (), (), {}, id="names alone, without its own"),
        pytest.param((), (row("one", "d0"),), ("one",), (), {}, id="an older answer about names"),
        pytest.param(None, (row("one", "d0"),), ("one",), (), {"one": ("d0",)}, id="no checkpoint: by name"),
        pytest.param(None, (row("gone", "d0"),), ("one",), (), {}, id="no checkpoint, and a name nobody has"),
        pytest.param(None, None, ("one",), (), {}, id="nothing is known"),
        pytest.param((held_by("one", "d0", name=NIC),), (), ("one",), (), {}, id="a resource that is not ours"),
        pytest.param((held_by("one"),), (), ("one",), (), {}, id="an entry without devices"),
    ],
)
def test_attribution(entries: Entries | None, rows: Rows | None, pods: Names, ended: Names, expected: Held) -> None:
    found = attributed(entries, rows, pods, ended, before=(ONE,))
    assert {a.pod_uid: a.device_ids for a in found.allocations} == expected
    assert found.conflicts == ()


def test_a_pod_that_only_the_kubelet_knows_has_the_name_that_it_reports() -> None:
    stranger = held_by("stranger", "x", name=NIC), row("stranger", "x", resource_name=NIC)
    found = attributed((ONE, stranger[0]), (row("one-by-name", "d0"), stranger[1]))
    assert [(p.uid, p.namespace, p.name) for p in found.unknown_pods.values()] == [("one", "default", "one-by-name")]


def test_an_init_container_is_attributed_by_the_name_of_another_container() -> None:
    found = attributed((held_by("one", "d0", "d1", container="first"), ONE), (row("one", "d0"),))
    assert {a.container: a.device_ids for a in found.allocations} == {"first": ("d0", "d1"), "main": ("d0",)}


def test_by_name_numa_nodes_are_the_plugins() -> None:
    (found,) = attributed(None, (row("one", "d0", "d1"),), ("one",)).allocations
    assert found.ids_by_numa == {1: ("d0", "d1")}


@pytest.mark.parametrize(("before", "kept"), [((), "one"), ((held_by("two", "d0"),), "two")])
def test_a_device_of_two_pods_stays_with_the_one_that_had_it(before: tuple[Allocation, ...], kept: str) -> None:
    found = attributed((held_by("one", "d0"), held_by("two", "d0")), (), ("one", "two"), before=before)
    assert [a.pod_uid for a in found.allocations] == [kept]
    assert [a.pod_uid for a in found.conflicts] == [{"one": "two", "two": "one"}[kept]]


@pytest.mark.parametrize(
    ("before", "entries", "expected"),
    [
        pytest.param((ONE, TWO), (TWO, ONE), set(), id="another order"),
        pytest.param((), (ONE,), {("default", "one")}, id="one that came"),
        pytest.param((ONE,), (held_by("one", "d3"),), {("default", "one")}, id="one with other devices"),
        pytest.param((ONE,), (ONE, SIDE), {("default", "one")}, id="one more container"),
        pytest.param((ONE, TWO), (ONE,), set(), id="one that ended"),
        pytest.param((ONE, EARLY), (ONE, EARLY), set(), id="one without a name as before"),
        pytest.param((), (ONE, EARLY), None, id="one that the API does not have"),
        pytest.param((), (held_by(HASH, "d3"),), {("default", "mirror")}, id="a static pod"),
    ],
)
def test_pods_that_changed_are_named(before: Entries, entries: Entries, expected: set[tuple[str, str]] | None) -> None:
    pods = {uid: pod(uid, gpu=1) for uid in ("one", "two")} | {
        "mirror": replace(pod("mirror", gpu=1), config_hash=HASH)
    }
    found = changed_pods(before, entries, pods)
    assert found == (None if expected is None else frozenset(expected))


INJECTED = replace(held_by("injected", "d3"), delivery=DELIVERY_NRI)


@pytest.mark.parametrize(
    ("entries", "pods", "expected"),
    [
        pytest.param((ONE,), ("one", "injected"), {"one": ("d0",), "injected": ("d3",)}, id="until its pod ends"),
        pytest.param((ONE,), ("one",), {"one": ("d0",)}, id="its pod has ended"),
        pytest.param((), (), {"injected": ("d3",)}, id="before the API has shown any pod"),
        pytest.param(None, ("injected",), {"injected": ("d3",)}, id="the kubelet's checkpoint cannot be used"),
        pytest.param((held_by("injected", "d1"),), ("injected",), {"injected": ("d1",)}, id="the kubelet gave another"),
        pytest.param((held_by("one", "d3"),), ("one", "injected"), {"injected": ("d3",)}, id="it gave it again"),
    ],
)
def test_what_was_delivered_in_another_way_stays_its_pods(entries: Entries | None, pods: Names, expected: Held) -> None:
    assert {a.pod_uid: a.device_ids for a in attributed(entries, pods=pods, before=(INJECTED,)).allocations} == expected
