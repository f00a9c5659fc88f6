"""What a cleanup does on a cluster that has everything: each write in its order, what it prints, and what may stay."""

import asyncio
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, NotFound, Unreachable
from nodedevice_operator.__main__ import main
from nodedevice_operator.cli import cleanup
from nodedevice_operator.cli.api import SCHEDULERS
from nodedevice_operator.cli.cleanup import Cleanup
from nodedevice_operator.cli.cleanup_plan import CleanupScope, Survey
from nodedevice_operator.cli.command_base import within
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

from tests.fakes.parts import misfits
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
from tests.unit.operator.kube.api_server import kubeconfig, kubeconfig_text

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


@virtual_time
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


@virtual_time
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


@virtual_time
async def test_a_namespace_that_stays_holds_nothing_up(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.ending = {NAMESPACE: 1000.0}
    assert 20 <= await cleaned(stored, ALL) <= 22
    assert capsys.readouterr().out.splitlines()[-1] == (
        "going on although namespace leases is still being deleted: its conditions name the cause"
    )
    assert stored.writes[-1] == ("free", "DELETE", f"{LEASES}/here/leases/{SCHEDULERS[-1]}")


@virtual_time
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


@virtual_time
@pytest.mark.parametrize("failure", [GONE, ANOTHER], ids=["gone", "another"])
async def test_what_is_gone_meanwhile_is_gone(failure: ApiError, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.refused = {POD_DEVICE: failure}
    stored.answers[f"{NODE_DEVICES}/node-a.nic/status"] = [failure]
    await cleaned(stored)
    assert capsys.readouterr().out.splitlines()[-1] == "deleted the Leases in leases"


@virtual_time
async def test_a_node_that_others_write_too_is_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    changed = Conflict("PATCH", "nodes/status", "the object has been modified", 409)
    stored.answers[f"{NODES}/node-a/status"] = [changed] * 19 + [WITHOUT_CAPACITY]
    await cleaned(stored)
    assert OF_THE_NODE[1] in capsys.readouterr().out.splitlines()
    assert stored.writes.count(("fenced", "PATCH", f"{NODES}/node-a/status")) == 20


@virtual_time
async def test_a_node_that_is_deleted_meanwhile_has_nothing_removed(capsys: pytest.CaptureFixture[str]) -> None:
    stored = Stored()
    stored.answers[f"{NODES}/node-a/status"] = [NotFound("PATCH", "nodes/status", "not found", 404)]
    await cleaned(stored)
    assert "Node node-a" not in capsys.readouterr().out


@virtual_time
@pytest.mark.parametrize("answer", ["denied", "written again and again"])
async def test_what_is_refused_ends_it_and_the_lease_is_free_again(answer: str) -> None:
    denied: ApiError = Denied("PATCH", "nodes/status", "this Node is not to be touched", 403)
    changed: ApiError = Conflict("PATCH", "nodes/status", "the object has been modified", 409)
    stored = Stored()
    stored.answers[f"{NODES}/node-a/status"] = [denied] if answer == "denied" else [changed] * 20
    with pytest.raises(ExceptionGroup) as failed:
        await cleaned(stored)
    assert failed.value.exceptions == (denied if answer == "denied" else changed,)
    assert stored.writes[-1] == ("fenced", "PATCH", f"{NODES}/node-a/status")
    assert stored.holders[-1] == ""


SURVEY: Final = Survey((), 0, 0, (), (), 0, 0, (), False, ())


class AwayAtFirst:
    """An API server that answers from the second request on."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self) -> None:
        self.asked += 1
        if self.asked == 1:
            raise Unreachable("GET", "nodes", "connection refused")


@virtual_time
async def test_only_one_of_its_clients_writes_without_the_lead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Cleanup] = []

    class Run(Cleanup):
        async def run(self) -> None:
            made.append(self)
            await self.progress.retrying(AwayAtFirst())

    monkeypatch.setattr(cleanup, "Cleanup", Run)
    login = credentials.load(kubeconfig(tmp_path, "http://127.0.0.1:1"))
    await cleanup._run(login, SCOPE, 10, 3)
    [run] = made
    assert misfits(run) == []
    assert run.scope is SCOPE
    assert (run.free._transport._credentials, run.fenced._transport._credentials) == (login, login)
    assert (run.free._fence, run.fenced._fence) == (None, run.fence)
    fences = [each._dynamic.client.rest_client.pool_manager._fence for each in (run.free_objects, run.fenced_objects)]
    assert fences == [None, run.fence]
    printed = capsys.readouterr()
    assert printed.out == "nodedevice is removed, except for the objects reported above\n"
    assert printed.err == "waiting for the API server: GET nodes: connection refused\n"


def test_of_several_failures_the_first_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def surveyed(*_: object) -> tuple[Survey, float]:
        return SURVEY, 0.0

    async def fails(*_: object) -> None:
        raise ExceptionGroup("several", [Denied("PATCH", "nodes", f"node {each}", 403) for each in "ab"])

    monkeypatch.setattr(cleanup, "_survey", surveyed)
    monkeypatch.setattr(cleanup, "_run", fails)
    done = CliRunner().invoke(main, ["cleanup", "--kubeconfig", kubeconfig(tmp_path, "http://127.0.0.1:1"), "--yes"])
    assert (done.exit_code, done.stderr) == (1, "Error: PATCH nodes: node a\n")


@pytest.mark.parametrize(("in_kubeconfig", "flags"), [("", ()), ("there", ("--namespace", names.SYSTEM_NAMESPACE))])
def test_without_a_namespace_it_is_about_that_of_the_chart(
    in_kubeconfig: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def surveyed(_: object, scope: CleanupScope, seconds: float) -> tuple[Survey, float]:
        assert (scope.namespace, seconds) == (names.SYSTEM_NAMESPACE, 180.0)
        return SURVEY, 0.0

    monkeypatch.setattr(cleanup, "_survey", surveyed)
    context = {"cluster": "here", "user": "me", **({"namespace": in_kubeconfig} if in_kubeconfig else {})}
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig_text({}, {}, contexts=[{"name": "here", "context": context}]))
    done = CliRunner().invoke(main, ["cleanup", "--kubeconfig", str(file), "--dry-run", *flags])
    assert done.exit_code == 0, done.output
