"""The command `cleanup`: it says on which cluster it will do what, asks, and blames for a delay whoever causes it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from nodedevice_operator.__main__ import main
from nodedevice_operator.cli import cleanup as cleanup
from nodedevice_operator.cli.cleanup import Cleanup
from nodedevice_operator.cli.cleanup_plan import CleanupScope, Survey
from nodedevice_operator.cli.progress import Progress, within
from nodedevice_operator.errors import Forbidden, NotFound, OperatorError, Overdue, StillLed, Unreachable
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.parts import misfits
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.kube.api_server import kubeconfig

URL = "http://127.0.0.1:1"
SCOPE = CleanupScope("here", "leases", "nodedevice-operator", ("nodedevice-agent",), False, False)
SURVEY = Survey((), 0, 0, (), (), 0, 2, (), False, ())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The namespaces of which it begins to remove anything."""
    done: list[str] = []

    async def found(*_: object) -> Survey:
        return SURVEY

    async def run(_login: object, scope: CleanupScope, *_: object) -> None:
        done.append(scope.namespace)

    monkeypatch.setattr(cleanup, "survey", found)
    monkeypatch.setattr(cleanup, "_run", run)
    return done


@pytest.mark.parametrize(
    ("flags", "is_terminal", "typed", "status", "is_done"),
    [
        pytest.param(["--yes"], False, "", 0, True, id="a Job"),
        pytest.param(["--yes"], True, "", 0, True, id="yes beforehand"),
        pytest.param([], True, "y\n", 0, True, id="yes"),
        pytest.param([], True, "n\n", 1, False, id="no"),
        pytest.param([], True, "\n", 1, False, id="Enter"),
        pytest.param([], True, "", 1, False, id="end of input"),
        pytest.param([], False, "y\n", 2, False, id="a script without --yes"),
        pytest.param(["--dry-run"], False, "", 0, False, id="the plan alone"),
        pytest.param(["--dry-run"], True, "y\n", 0, False, id="the plan on a terminal"),
        pytest.param(["--dry-run", "--yes"], False, "", 0, False, id="both"),
    ],
)
def test_nothing_is_removed_that_nobody_confirmed(
    runs: list[str],
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
    done = CliRunner().invoke(main, ["cleanup", "--kubeconfig", file, *flags], input=typed)
    assert (done.exit_code, runs) == (status, ["there"] if is_done else []), done.output
    first, second, third, *_ = done.stdout.splitlines()
    assert first == f"cleanup of {URL} (context here of kubeconfig {file}):"
    assert second == "  no workload of ours is in namespace there (--namespace names another)"
    assert third == "  delete 2 NodeDevices"
    assert ("give --yes" in done.stderr) is (status == 2)
    assert ("nothing was changed, as this is a dry run" in done.stdout) is ("--dry-run" in flags)


def test_a_closed_stdin_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert not cleanup._is_terminal()


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


async def test_each_part_of_it_works_with_its_own_client(tmp_path: Path) -> None:
    login = credentials.load(kubeconfig(tmp_path, URL))
    free, fenced = (Client(login, ApiHealth(URL), Metrics().writes) for _ in range(2))
    made = Cleanup(free, fenced, WriteFence(), SCOPE, Progress())
    assert misfits(made) == []
    assert made._leases._client is free
    for part in (made._cluster, made._capacity, made._node_labels, made._leftovers):
        assert part._client is fenced


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


async def stopped_by(api: Api) -> OperatorError:
    """What a run in that cluster ends with."""
    with pytest.raises(OperatorError) as stopped:
        async with within(180) as progress:
            await Cleanup(api, api, WriteFence(), SCOPE, progress).run()  # type: ignore[arg-type]
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
    leases: Callable[[str], bytes], error: type[OperatorError], sentence: str
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


@virtual_time
async def test_each_step_is_printed_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    await stopped_by(Api(led_by_another))
    assert capsys.readouterr().out.splitlines() == [
        "deleting the workloads in namespace here",
        "waiting until the pods of agents, operators and schedulers have ended, at most 40 s",
        "waiting until no operator leads, at most 65 s",
    ]
