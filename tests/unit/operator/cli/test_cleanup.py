"""The command `cleanup`: it says on which cluster it will do what, asks, and blames for a delay whoever causes it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Denied, Forbidden, NotFound, Unreachable
from nodedevice_operator.__main__ import main
from nodedevice_operator.cli import cleanup
from nodedevice_operator.cli.cleanup import Cleanup
from nodedevice_operator.cli.cleanup_plan import CleanupScope, Survey
from nodedevice_operator.cli.cleanup_survey import survey as survey_of
from nodedevice_operator.cli.command_base import Progress, within
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.errors import OperatorError, Overdue, StillLed
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.cli.cluster import objects_of
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
    runs: Runs,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: list[str],
    is_terminal: bool,
    typed: str,
    status: int,
    is_done: bool,
) -> None:
    monkeypatch.setattr(cleanup, "_is_terminal", lambda: is_terminal)
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
    ("flags", "is_refused"),
    [([], False), (["--namespace", "agents"], False), (["--namespace", "agents", "--delete-leases-namespace"], True)],
)
def test_the_operators_own_namespace_is_never_deleted(
    flags: list[str], is_refused: bool, runs: Runs, tmp_path: Path
) -> None:
    file = kubeconfig(tmp_path, URL, token="a")
    done = invoked(file, "--leases-namespace", "agents", "--yes", *flags)
    assert (done.exit_code, bool(runs.namespaces)) == ((2, False) if is_refused else (0, True))
    assert ("agents is the operator's own; helm uninstall keeps it" in done.stderr) is is_refused


class Kinds(Client):
    """A cluster that has these, by path or kind; what is an error is raised, and everything else is not there."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    async def request(self, verb: str, what: str, path: str, **_: object) -> bytes:
        answer = self.found.get(path, self.found.get(what, NotFound(verb, what, "not found", 404)))
        if isinstance(answer, ApiError):
            raise answer
        return json.dumps({"metadata": {"resourceVersion": "1"}, **answer}).encode()


async def test_a_survey_is_everything_that_is_left() -> None:
    apps, own = "/apis/apps/v1/namespaces/here", f"/apis/{names.API_VERSION}"

    def named(name: str, **more: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, **more}

    node_devices = [named("a"), named("b", spec={"cordonedDevices": [{"id": "x"}]})]
    found = {
        f"{apps}/deployments/nodedevice-operator": {},
        # who may delete it by its name need not be allowed to read it
        f"{apps}/daemonsets/nodedevice-agent": Forbidden("GET", "daemonsets", "no role", 403),
        "/api/v1/nodes": {"items": [named("n", status={})]},
        "/api/v1/namespaces/here/pods": {"items": [named("p", spec={"nodeName": "n"})]},
        f"{own}/nodedevices": {"items": node_devices},
        "/api/v1/namespaces/leases": {},
    }
    survey = await survey_of(Kinds(found), objects_of(Kinds(found)), SCOPE, Progress())
    assert survey == Survey(
        workloads=(("deployments", "nodedevice-operator"), ("daemonsets", "nodedevice-agent")),
        pods=1,
        nodes=1,
        marked=(),
        policies=(),
        pod_devices=0,
        node_devices=1,
        kept=("b",),
        has_leases_namespace=True,
        crds=(),
    )
    # what may not be read counts as existing
    refused = Forbidden("GET", "x", "no role", 403)
    found |= dict.fromkeys((BINDINGS, POLICIES, "customresourcedefinitions"), refused)
    found[f"{own}/poddevices"] = {"items": [named("d", spec={"podUID": "u"})]}
    # nobody answers any more what the kind of them is
    del found[f"{own}/nodedevices"]
    scope = replace(SCOPE, delete_crds=True)
    assert await survey_of(Kinds(found), objects_of(Kinds(found)), scope, Progress()) == replace(
        survey,
        policies=tuple(f"{kind} {NAME}" for kind in (BINDINGS, POLICIES)),
        pod_devices=1,
        node_devices=0,
        kept=(),
        crds=NAMES,
    )


class Api:
    """A client in whose cluster nothing is left but, perhaps, an operator's Lease and its pod: answered as the test has it."""

    def __init__(
        self, leases: Callable[[str], bytes], pods: Callable[[], bytes] = lambda: b'{"metadata": {}, "items": []}'
    ) -> None:
        self.leases = leases
        self.pods = pods

    async def request(self, verb: str, what: str, _path: str, **_: object) -> bytes:
        if what == "leases":
            return self.leases(verb)
        if what == "pods" and verb == "GET":
            return self.pods()
        raise NotFound(verb, what, "not found", 404)

    async def settle(self, _seconds: float) -> bool:
        return True


def away(what: str) -> Unreachable:
    return Unreachable("GET", what, "connection refused")


def led_by_another(_verb: str) -> bytes:
    return b'{"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "node-x", "leaseDurationSeconds": 60}}'


def unreachable(_verb: str) -> bytes:
    raise away("leases")


def read_only(verb: str) -> bytes:
    if verb == "GET":
        raise NotFound(verb, "leases", "not found", 404)
    raise Forbidden(verb, "leases", "no role", 403)


async def stopped_by(api: Api) -> Exception:
    """What a run in that cluster ends with."""
    client: Any = api
    one = objects_of(client)
    with pytest.raises((OperatorError, ApiError)) as stopped:
        async with within(180) as progress:
            await Cleanup(client, client, one, one, WriteFence(), SCOPE, progress).run()
    return stopped.value


@virtual_time
@pytest.mark.parametrize(
    ("leases", "error", "sentence"),
    [
        (led_by_another, StillLed, "the operator node-x leads, and has not ended after 65 s: stop it"),
        (unreachable, Overdue, "while waiting until no operator leads: GET leases: connection refused"),
        (read_only, Forbidden, "PUT leases: no role"),
    ],
    ids=["an operator elsewhere", "an API server that is away", "a role that is missing"],
)
async def test_what_keeps_it_from_leading_is_what_it_names(
    leases: Callable[[str], bytes], error: type[Exception], sentence: str
) -> None:
    stopped = await stopped_by(Api(leases))
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
    def pods() -> bytes:
        if is_away:
            raise away("pods")
        return b'{"metadata": {}, "items": [{"metadata": {"name": "agent-1"}, "spec": {"nodeName": "node-a"}}]}'

    await stopped_by(Api(read_only, pods))
    assert sentence in capsys.readouterr().out.splitlines()
