"""Lists and watches in trouble: agent, operator and extender neither end nor flood the API server, lose nothing, and follow again.

Each program is a process behind a proxy of its own. Beside it is a suite for the state machine alone: tests/unit/kube.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Final

import pytest

from tests.cluster.api import Node
from tests.cluster.build.binaries import find
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.conformance.connection.programs import KINDS, MOST, Agent, Extender, Operator, Program, running
from tests.fakes.fault_proxy import Rule, refusal
from tests.integration.deadlines import environment

# How often a program lists or watches for each watch, at least, before a fault ends.
_ROUNDS: Final = 3
# How often at most for each watch: at once, and per second. Pauses are the program's, so a slow machine makes it less.
_AT_ONCE: Final = 6
_PER_SECOND: Final = 3
# Of an agent, whatever it watches: there are thousands of them.
_AGENT_PER_SECOND: Final = 5
_RETRY_AFTER_SECONDS: Final = 1
_ENDLESS: Final = 10**9
_LATER_WRITES: Final = 200
# After how many seconds without anything a connection counts as silent, in one test; the programs wait for more than a minute.
_USUAL: Final[dict[str, float]] = {}
_SILENCE: Final = dict.fromkeys(
    (
        "nodedevice_kube.list_watch.SILENCE_SECONDS",
        "nodedevice_operator.kube.client._SILENCE_SECONDS",
    ),
    4.0,
)

GONE: Final = refusal(410, "Expired", "too old resource version: 1 (9)")
GONE_EVENT: Final = json.dumps({"type": "ERROR", "object": json.loads(GONE)}).encode() + b"\n"
OLD_EVENT: Final = b'{"type":"MODIFIED","object":{"metadata":{"name":"x","uid":"x","resourceVersion":"1"}}}\n'

Fault = Callable[[ControlPlane, tuple[Program, ...]], AbstractContextManager[None]]


def answered(status: int, body: bytes, *methods: str, **headers: str) -> Fault:
    """Each watch gets that response, and each list too where the methods are given."""
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}

    @contextmanager
    def fault(_: ControlPlane, programs: tuple[Program, ...]) -> Iterator[None]:
        for program in programs:
            program.proxy.rules = [
                Rule(method, f"/{kind}", _ENDLESS, status, body, headers)
                for kind in KINDS
                for method in methods or ["WATCH"]
            ]
            program.proxy.cut()
        yield
        for program in programs:
            program.proxy.rules = []

    return fault


@contextmanager
def busy(control_plane: ControlPlane, programs: tuple[Program, ...]) -> Iterator[None]:
    """Lists and watches get a 429. Whoever was asked to wait has waited."""
    fault = answered(429, b"Too many requests\n", "GET", "WATCH", Retry_After=str(_RETRY_AFTER_SECONDS))
    with fault(control_plane, programs):
        rules = [(type(program).__name__, rule) for program in programs for rule in program.proxy.rules]
        yield
    times = defaultdict[tuple[str, str], list[float]](list)
    for name, rule in rules:
        for when, what in rule.at:
            times[name, what].append(when)
    for who, asked in times.items():
        pauses = [later - earlier for earlier, later in pairwise(sorted(asked))]
        # timers may be a moment early
        assert all(pause > 0.95 * _RETRY_AFTER_SECONDS for pause in pauses), (who, pauses)


@contextmanager
def halved(_: ControlPlane, programs: tuple[Program, ...]) -> Iterator[None]:
    """Lists and lines of watches are cut in the middle."""
    for program in programs:
        program.proxy.halved_kinds = KINDS
        program.proxy.cut()
    yield
    for program in programs:
        assert program.proxy.halved
        program.proxy.halved_kinds = frozenset()


@contextmanager
def silent(_: ControlPlane, programs: tuple[Program, ...]) -> Iterator[None]:
    """Over the connections that watches have now nothing comes any more."""
    for program in programs:
        assert program.proxy.silence()
    yield


@contextmanager
def restored(control_plane: ControlPlane, programs: tuple[Program, ...]) -> Iterator[None]:
    """The API server is restored from a backup of before: versions go back, and what was changed since is lost."""
    node = next(iter(control_plane.client.list(Node))).metadata.name
    backup = control_plane.folder.parent / "backup"
    control_plane.back_up(backup)
    for number in range(_LATER_WRITES):
        control_plane.client.patch(Node, node, {"metadata": {"annotations": {"number": str(number)}}})
    yield
    control_plane.restore(backup)


@pytest.fixture(scope="module")
def own_control_plane(
    progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """No other test may be on it: it loses what it had."""
    find(["helm"], progress)
    with ControlPlane.start(tmp_path_factory.mktemp("faults") / "control-plane", progress) as control_plane:
        install_chart(control_plane)
        yield control_plane


@pytest.fixture(scope="module", params=[_USUAL])
def programs(
    own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Program, ...]]:
    """The parameter: constants of the programs that are others in them."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment(request.param).items():
            patched.setenv(name, value)
        # a short path: sockets lie below it
        with running(own_control_plane, tmp_path_factory.mktemp("f")) as made:
            yield made


EACH: Final = (Agent, Operator, Extender)


# What follows all the same while the fault lasts: what lists where its watch fails, in the third column.
@pytest.mark.parametrize(
    ("fault", "programs", "following"),
    [
        pytest.param(silent, _SILENCE, EACH, id="silent"),
        pytest.param(answered(410, GONE), _USUAL, EACH, id="410"),
        pytest.param(answered(200, GONE_EVENT), _USUAL, EACH, id="ends with 410"),
        pytest.param(answered(200, b""), _USUAL, (Agent,), id="ends at once"),
        pytest.param(answered(200, OLD_EVENT), _USUAL, (Agent,), id="repeats an event"),
        pytest.param(answered(500, refusal(500, "InternalError", "etcd is away")), _USUAL, (Agent,), id="500"),
        pytest.param(busy, _USUAL, (), id="429"),
        pytest.param(halved, _USUAL, (), id="cut in the middle"),
        pytest.param(restored, _USUAL, EACH, id="restored"),
    ],
    indirect=["programs"],
)
def test_a_fault_is_survived(
    own_control_plane: ControlPlane,
    programs: tuple[Program, ...],
    fault: Fault,
    following: tuple[type[Program], ...],
    subtests: pytest.Subtests,
) -> None:
    for program in programs:
        program.change(MOST)
    for program in programs:
        program.wait_shown(MOST)
    before = [(program, program.process.pid, len(program.requested())) for program in programs]
    with fault(own_control_plane, programs):
        for program in programs:
            program.change(MOST - 1)
        for program, _, requested in before:
            with subtests.test(f"{type(program).__name__} meanwhile"):
                if isinstance(program, following):
                    program.wait_shown(MOST - 1)
                if fault not in (silent, restored):
                    program.wait_requested(requested + _ROUNDS * program.watches)
                assert program.shown() in (MOST, MOST - 1)
                program.verify_kept()
    for program, pid, requested in before:
        with subtests.test(f"{type(program).__name__} afterwards"):
            program.wait_shown(MOST if fault is restored else MOST - 1)
            program.change(1)
            program.wait_shown(1)
            program.verify_kept()
            assert program.process.pid == pid
            times = program.requested()[requested:]
            per_second = _AGENT_PER_SECOND if isinstance(program, Agent) else _PER_SECOND * program.watches
            assert len(times) <= _AT_ONCE * program.watches + per_second * (times[-1] - times[0])
