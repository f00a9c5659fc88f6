"""The command `cleanup`: it says on which cluster it will do what, asks, and blames for a delay whoever causes it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, Forbidden, Unreachable
from nodedevice_operator.__main__ import main
from nodedevice_operator.cli import cleanup
from nodedevice_operator.cli.cleanup import Cleanup
from nodedevice_operator.cli.cleanup_plan import CleanupScope, Survey
from nodedevice_operator.cli.cleanup_survey import survey as survey_of
from nodedevice_operator.cli.command_base import Progress, within
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.errors import OperatorError, Overdue, StillLed
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.cli.cluster import (
    ADMISSION,
    CRDS,
    LEASES,
    NODE_DEVICES,
    PODS,
    MemoryClient,
    Stored,
    named,
    objects_of,
)
from tests.unit.operator.kube.api_server import kubeconfig, kubeconfig_text

URL = "http://127.0.0.1:1"
SCOPE = CleanupScope("here", "leases", "nodedevice-operator", ("nodedevice-agent",), False, False)
SURVEY = Survey((), 0, 0, (), (), 0, 2, (), False, ())


class Runs:
    """The namespaces of which it begins to remove anything, what it is allowed in seconds, and how that ends."""

    def __init__(self) -> None:
        self.namespaces: list[str] = []
        self.seconds: list[float] = []
        self.failure: Exception | None = None
        self.is_terminal = False

    async def run(self, _login: object, scope: CleanupScope, seconds: float, _spent: float) -> None:
        self.namespaces.append(scope.namespace)
        self.seconds.append(seconds)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    async def found(*_: object) -> Survey:
        return SURVEY

    made = Runs()
    monkeypatch.setattr(cleanup, "survey", found)
    monkeypatch.setattr(cleanup, "_run", made.run)
    monkeypatch.setattr(cleanup, "_is_terminal", lambda: made.is_terminal)
    return made


def invoked(file: str, *flags: str, typed: str = "") -> Result:
    return CliRunner().invoke(main, ["cleanup", "--kubeconfig", file, *flags], input=typed)


@pytest.mark.parametrize(
    ("flags", "is_terminal", "typed", "status", "is_done"),
    [
        pytest.param(["--yes"], False, "", 0, True, id="a Job"),
        pytest.param([], True, "y\n", 0, True, id="yes"),
        pytest.param([], True, "\n", 1, False, id="Enter"),
        pytest.param([], True, "", 1, False, id="end of input"),
        pytest.param([], False, "y\n", 2, False, id="a script without --yes"),
        pytest.param(["--dry-run", "--yes"], True, "", 0, False, id="the plan alone"),
    ],
)
def test_nothing_is_removed_that_nobody_confirmed(
    runs: Runs, tmp_path: Path, flags: list[str], is_terminal: bool, typed: str, status: int, is_done: bool
) -> None:
    runs.is_terminal = is_terminal
    file = kubeconfig(tmp_path, URL, token="a")
    done = invoked(file, *flags, typed=typed)
    assert (done.exit_code, runs.namespaces) == (status, ["there"] if is_done else []), done.output
    first, second, third, *_ = done.stdout.splitlines()
    assert first == f"cleanup of {URL} (context here of kubeconfig {file}):"
    assert second == "  no workload of ours is in namespace there (--namespace names another)"
    assert third == "  delete 2 NodeDevices"
    assert ("pass --yes" in done.stderr) is (status == 2)
    assert ("dry run: nothing was changed" in done.stdout) is ("--dry-run" in flags)


def test_of_several_failures_the_first_is_reported(runs: Runs, tmp_path: Path) -> None:
    runs.failure = ExceptionGroup("several", [Denied("PATCH", "nodes", f"node {each}", 403) for each in "ab"])
    done = invoked(kubeconfig(tmp_path, URL), "--yes")
    assert (done.exit_code, done.stderr) == (1, "Error: PATCH nodes: node a\n")


@pytest.mark.parametrize(("in_kubeconfig", "flags"), [("", ()), ("there", ("--namespace", names.SYSTEM_NAMESPACE))])
def test_without_a_namespace_it_is_about_that_of_the_chart(
    in_kubeconfig: str, flags: tuple[str, ...], runs: Runs, tmp_path: Path
) -> None:
    context = {"cluster": "here", "user": "me", **({"namespace": in_kubeconfig} if in_kubeconfig else {})}
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig_text({}, {}, contexts=[{"name": "here", "context": context}]))
    assert invoked(str(file), "--yes", *flags).exit_code == 0
    assert (runs.namespaces, runs.seconds) == ([names.SYSTEM_NAMESPACE], [180.0])


@pytest.mark.parametrize(
    ("flags", "refused"),
    [([], False), (["--namespace", "agents"], False), (["--namespace", "agents", "--delete-leases-namespace"], True)],
)
def test_the_operators_namespace_is_never_deleted(flags: list[str], refused: bool, runs: Runs, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, URL, token="a")
    done = invoked(file, "--leases-namespace", "agents", "--yes", *flags)
    assert (done.exit_code, bool(runs.namespaces)) == ((2, False) if refused else (0, True))
    assert ("agents is the operator's own; helm uninstall keeps it" in done.stderr) is refused


def clients(stored: Stored) -> tuple[Any, Any]:
    client = MemoryClient("any", stored)
    return client, objects_of(client)


@virtual_time
async def test_a_survey_is_everything_that_is_left() -> None:
    stored = Stored(f"{ADMISSION}/{POLICIES}/{NAME}", *(f"{CRDS}/{name}" for name in NAMES))
    stored.objects[f"{PODS}/p"] = named("p", spec={"nodeName": "n"})
    # who may delete it by its name need not be allowed to read it
    stored.unread["GET", "daemonsets"] = REFUSED
    survey = await survey_of(*clients(stored), SCOPE, Progress())
    assert survey == Survey(
        workloads=(("deployments", "nodedevice-operator"), ("daemonsets", "nodedevice-agent")),
        pods=1,
        nodes=2,
        marked=("node-a",),
        policies=(f"{BINDINGS} {NAME}",),
        pod_devices=1,
        node_devices=1,
        kept=("node-a.nic",),
        has_leases_namespace=True,
        crds=(),
    )
    # what may not be read counts as existing; nobody answers any more what kind NodeDevices are
    stored.unread |= {("GET", what): REFUSED for what in (BINDINGS, POLICIES, "customresourcedefinitions")}
    stored.kinds.remove(NODE_DEVICES)
    expected = replace(survey, node_devices=0, kept=(), crds=NAMES)
    expected = replace(expected, policies=tuple(f"{kind} {NAME}" for kind in (BINDINGS, POLICIES)))
    assert await survey_of(*clients(stored), replace(SCOPE, delete_crds=True), Progress()) == expected


async def stopped_by(stored: Stored) -> Exception:
    """What a run in that cluster ends with."""
    client, one = clients(stored)
    with pytest.raises((OperatorError, ApiError)) as stopped:
        async with within(180) as progress:
            await Cleanup(client, client, one, one, WriteFence(), SCOPE, progress).run()
    return stopped.value


READ, WRITE = ("GET", "leases"), ("PUT", "leases")
LEASE = f"{LEASES}/here/leases/{names.OPERATOR_LEASE}"
LED = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "node-x", "leaseDurationSeconds": 60}}
AWAY = Unreachable("GET", "leases", "connection refused")
REFUSED = Forbidden("PUT", "leases", "no role", 403)
TAKEN = Conflict("PUT", "x", "y", 409)


@virtual_time
@pytest.mark.parametrize(
    ("failures", "error", "sentence"),
    [
        ({WRITE: TAKEN}, StillLed, "the operator node-x leads, and has not ended after 65 s: stop it"),
        ({READ: AWAY, WRITE: AWAY}, Overdue, "while waiting until no operator leads: GET leases: connection refused"),
        ({WRITE: REFUSED}, Forbidden, "PUT leases: no role"),
    ],
    ids=["an operator elsewhere", "an API server that is away", "a role that is missing"],
)
async def test_what_keeps_it_from_leading_is_what_it_names(
    failures: dict[tuple[str, str], ApiError], error: type[Exception], sentence: str
) -> None:
    stored = Stored()
    stored.unread = failures
    if error is StillLed:
        stored.objects[LEASE] = LED
    stopped = await stopped_by(stored)
    assert type(stopped) is error
    assert sentence in str(stopped)


@virtual_time
@pytest.mark.parametrize(
    ("is_away", "sentence"),
    [
        (False, "going on although pods are still running: agent-1 on node-a: the Lease keeps operators from writing"),
        (True, "going on although GET pods: connection refused"),
    ],
    ids=["pods", "an API server that is away"],
)
async def test_what_was_not_waited_for_any_longer_is_named(
    capsys: pytest.CaptureFixture[str], is_away: bool, sentence: str
) -> None:
    stored = Stored()
    stored.objects[f"{PODS}/agent-1"] = named("agent-1", spec={"nodeName": "node-a"})
    away = {("GET", "pods"): Unreachable("GET", "pods", "connection refused")}
    stored.unread = {WRITE: REFUSED, **(away if is_away else {})}
    await stopped_by(stored)
    assert sentence in capsys.readouterr().out.splitlines()
