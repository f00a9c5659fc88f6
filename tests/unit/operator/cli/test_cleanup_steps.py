"""What a cleanup does on a cluster that has everything: each write in its order, what it prints, and what may stay."""

import asyncio
from typing import Any, Final

import pytest
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, NotFound
from nodedevice_operator.cli.api import SCHEDULERS
from nodedevice_operator.cli.cleanup import Cleanup
from nodedevice_operator.cli.cleanup_plan import CleanupScope
from nodedevice_operator.cli.command_base import within
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.cli.cluster import (
    ADMISSION,
    APPS,
    CRDS,
    GPU,
    LABEL,
    LEASES,
    NAMESPACE,
    NIC,
    NODE_DEVICES,
    NODES,
    POD_DEVICE,
    POD_DEVICES,
    PODS,
    WITHOUT_CAPACITY,
    MemoryClient,
    Stored,
    named,
    objects_of,
)

pytestmark = virtual_time

SCOPE: Final = CleanupScope("here", "leases", "nodedevice-operator", ("nodedevice-agent",), False, False)
ALL: Final = CleanupScope("here", "leases", "nodedevice-operator", ("nodedevice-agent",), True, True)
BEGINNING: Final = [
    "deleting the workloads in namespace here",
    "deleted deployments nodedevice-operator",
    "deleted daemonsets nodedevice-agent",
    "waiting until the pods of agents, operators and schedulers have ended, at most 40 s",
    "waiting until no operator leads, at most 65 s",
    "removing capacity, taint and labels from Nodes",
]
OF_THE_NODE: Final = [
    f"Node node-a: {NIC} stays: also owned by kubelet",
    f"Node node-a: removed {GPU}, {NIC}, {LABEL}, the taint",
    "Nodes: 1 of 2 had capacity, taint or labels of ours",
]


async def cleaned(stored: Stored, scope: CleanupScope = SCOPE) -> float:
    """How many seconds it took."""
    loop, free, fenced = asyncio.get_running_loop(), MemoryClient("free", stored), MemoryClient("fenced", stored)
    began = loop.time()
    async with within(180) as progress:
        await Cleanup(free, fenced, objects_of(free), objects_of(fenced), WriteFence(), scope, progress).run()
    return loop.time() - began


async def test_each_thing_goes_in_its_turn_and_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    await cleaned(stored)
    assert stored.writes == [
        *(("free", "DELETE", f"{APPS}/deployments/{name}") for name in ("nodedevice-operator", *SCHEDULERS)),
        ("free", "DELETE", f"{APPS}/daemonsets/nodedevice-agent"),
        ("free", "DELETE", f"{PODS}/nodedevice-check"),
        ("fenced", "PATCH", f"{NODES}/node-a/status"),
        ("fenced", "PATCH", f"{NODES}/node-a"),
        ("fenced", "PATCH", f"{NODES}/node-a"),
        ("fenced", "DELETE", f"{ADMISSION}/{BINDINGS}/{NAME}"),
        ("fenced", "DELETE", f"{ADMISSION}/{POLICIES}/{NAME}"),
        ("fenced", "DELETE", POD_DEVICE),
        ("fenced", "DELETE", f"{NODE_DEVICES}/node-a.gpu"),
        ("fenced", "PATCH", f"{NODE_DEVICES}/node-a.nic/status"),
        ("fenced", "DELETE", f"{LEASES}/leases/leases"),
        *(("free", "DELETE", f"{LEASES}/here/leases/{name}") for name in (names.OPERATOR_LEASE, *SCHEDULERS)),
    ]
    assert stored.bodies[f"{NODES}/node-a/status"]["status"] == {"capacity": {}, "allocatable": {}}
    # it led for as long as it wrote, and no longer
    assert stored.holders[0].startswith("cleanup_")
    assert (stored.holders[-1], stored.settled) == ("", [("fenced", 1.0)])
    assert capsys.readouterr().out.splitlines() == [
        *BEGINNING,
        *OF_THE_NODE,
        f"deleting the policy {NAME}",
        f"deleted {BINDINGS} {NAME}",
        f"deleted {POLICIES} {NAME}",
        "deleting PodDevices",
        "deleted 1 PodDevices; pods keep running",
        "deleting NodeDevices",
        "deleted 1 NodeDevices",
        "kept NodeDevice node-a.nic, without status: an administrator has cordoned devices in it",
        "deleting the agents' Leases in namespace leases",
        "deleted the Leases in leases",
    ]


async def test_what_takes_its_time_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    there, absent, last = NAMES
    stored = Stored(f"{CRDS}/{absent}", f"{ADMISSION}/{BINDINGS}/{NAME}")
    stored.objects[f"{PODS}/agent-1"] = named("agent-1", spec={"nodeName": "node-a"})
    stored.stays(f"{PODS}/agent-1", 30.0)
    stored.ending = {f"{CRDS}/{there}": 4.0, NAMESPACE: 15.0}
    assert 49 <= await cleaned(stored, ALL) <= 52
    assert NAMESPACE not in stored.objects
    assert capsys.readouterr().out.splitlines()[len(BEGINNING) + len(OF_THE_NODE) :] == [
        f"deleting the policy {NAME}",
        f"deleted {POLICIES} {NAME}",
        "deleting PodDevices",
        "deleted 1 PodDevices; pods keep running",
        "deleting NodeDevices",
        "deleted 2 NodeDevices",
        f"deleting {there}",
        f"deleted {there}",
        f"deleting {absent}",
        f"deleting {last}",
        f"deleted {last}",
        "deleting namespace leases, at most 20 s",
        "deleted namespace leases, with the agents' Leases",
    ]


async def test_a_namespace_that_stays_holds_nothing_up(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.ending = {NAMESPACE: 1000.0}
    assert 20 <= await cleaned(stored, ALL) <= 22
    last = "going on although namespace leases is still being deleted: its conditions name the cause"
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert stored.writes[-1] == ("free", "DELETE", f"{LEASES}/here/leases/{SCHEDULERS[-1]}")


async def test_what_a_cluster_does_not_have_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    policies = [f"{ADMISSION}/{kind}/{NAME}" for kind in (BINDINGS, POLICIES)]
    await cleaned(Stored(POD_DEVICES, NODE_DEVICES, NAMESPACE, *policies, *(f"{CRDS}/{name}" for name in NAMES)), ALL)
    assert capsys.readouterr().out.splitlines()[len(BEGINNING) + len(OF_THE_NODE) :] == [
        f"deleting the policy {NAME}",
        "deleting PodDevices",
        "deleting NodeDevices",
        *(f"deleting {name}" for name in NAMES),
        "deleting namespace leases, at most 20 s",
    ]


GONE: Final = NotFound("DELETE", "x", "not found", 404)
ANOTHER: Final = Conflict("DELETE", "x", "the uid differs", 409)


@pytest.mark.parametrize("failure", [GONE, ANOTHER], ids=["gone", "another"])
async def test_what_is_gone_meanwhile_is_gone(failure: ApiError, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.refused = {POD_DEVICE: failure}
    stored.answers[f"{NODE_DEVICES}/node-a.nic/status"] = [failure]
    await cleaned(stored)
    assert capsys.readouterr().out.splitlines()[-1] == "deleted the Leases in leases"


CHANGED: Final = Conflict("PATCH", "nodes/status", "the object has been modified", 409)
DELETED: Final = NotFound("PATCH", "nodes/status", "not found", 404)


@pytest.mark.parametrize(
    ("answers", "is_removed"),
    [([CHANGED] * 19 + [WITHOUT_CAPACITY], True), ([DELETED], False)],
    ids=["changed", "deleted"],
)
async def test_a_node_that_others_write_too_is_read_again(
    answers: list[Any], is_removed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = Stored()
    stored.answers[f"{NODES}/node-a/status"] = [*answers]
    await cleaned(stored)
    assert (OF_THE_NODE[1] in capsys.readouterr().out.splitlines()) is is_removed
    assert stored.writes.count(("fenced", "PATCH", f"{NODES}/node-a/status")) == len(answers)


@pytest.mark.parametrize("answer", ["denied", "written again and again"])
async def test_what_is_refused_ends_it_and_the_lease_is_free_again(answer: str) -> None:
    denied: ApiError = Denied("PATCH", "nodes/status", "this Node is not to be touched", 403)
    stored = Stored()
    stored.answers[f"{NODES}/node-a/status"] = [denied] if answer == "denied" else [CHANGED] * 20
    with pytest.raises(ExceptionGroup) as failed:
        await cleaned(stored)
    assert failed.value.exceptions == (denied if answer == "denied" else CHANGED,)
    assert stored.writes[-1] == ("fenced", "PATCH", f"{NODES}/node-a/status")
    assert stored.holders[-1] == ""
