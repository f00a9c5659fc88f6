"""How long `check` waits, for what, and what it says meanwhile."""

from collections.abc import Callable

import pytest

from tests.unit.cli.api_server import LEASES, OURS, PODS, Answer, FakeApiServer, status
from tests.unit.cli.conftest import Clock, Ran, Run
from tests.unit.cli.objects import condition, labels_of, node_device, pod

_KIND = f"{OURS}/nodedevices"


def _unready(server: FakeApiServer, *names: str) -> None:
    conditions = [condition("AgentReady"), condition("Ready", "False", "ForeignOwner", "another owns it")]
    server.objects[_KIND] = [node_device(name, conditions=conditions) for name in names]


def _ready(server: FakeApiServer, name: str = "node-a") -> None:
    server.objects[_KIND] = [node_device(name)]


def test_it_waits_until_all_is_good(run: Run, server: FakeApiServer, clock: Clock) -> None:
    _unready(server, "node-a")
    clock.meanwhile = lambda: _ready(server) if len(clock.slept) == 2 else None
    ran = run("check")
    # said once
    assert ran.err == "waiting up to 60 s for NodeDevice node-a.example.com.gpu\n"
    assert (ran.status, clock.slept) == (0, [1.0, 1.0])


def test_it_waits_as_long_as_it_was_told_to(run: Run, server: FakeApiServer, clock: Clock) -> None:
    _unready(server, "node-a")
    ran = run("check", "--wait-seconds", "3")
    assert (ran.status, clock.slept) == (1, [1.0] * 3)
    assert "ForeignOwner: another owns it" in ran.out
    assert ran.err.startswith("waiting up to 3 s for ")


def test_a_lease_that_changes_is_renewed_whatever_clock_it_is_by(run: Run, server: FakeApiServer, clock: Clock) -> None:
    def renew() -> None:
        for each in server.objects[LEASES]:
            each["spec"]["renewTime"] = f"2020-01-01T00:00:{len(clock.slept):02}Z"

    renew()
    clock.meanwhile = renew
    assert run("check", "--wait-seconds", "5").status == 0
    assert clock.slept == [1.0]


_OFTEN: list[tuple[Answer, str]] = [
    (Answer(short=True), "cannot be reached"),
    (status(429), "has no room for"),
    (status(500, "no leader"), "failed at"),
    (status(503), "failed at"),
]


def _fails(run: Run, server: FakeApiServer, answer: Answer, *words: str) -> Ran:
    server.fault = lambda _: answer
    return run("check", *words)


@pytest.mark.parametrize(("answer", "words"), _OFTEN)
def test_a_server_that_does_not_answer_yet_is_waited_for(
    run: Run, server: FakeApiServer, clock: Clock, answer: Answer, words: str
) -> None:
    def recover() -> None:
        if clock.now >= 110:
            server.fault = lambda _: None

    clock.meanwhile = recover
    ran = _fails(run, server, answer)
    assert ran.status == 0
    [line] = ran.err.splitlines()
    assert line.startswith("waiting up to ")
    assert words in line


@pytest.mark.parametrize("answer", [status(401), status(400), status(499)])
def test_a_server_that_refuses_is_not_waited_for(run: Run, server: FakeApiServer, clock: Clock, answer: Answer) -> None:
    ran = _fails(run, server, answer)
    assert (ran.status, clock.slept) == (2, [])
    assert ran.err.count("\n") == 1


# -- what is read -------------------------------------------------------------------------------------------------------------


def _other(server: FakeApiServer, change: Callable[[dict[str, dict[str, object]]], object]) -> None:
    """A pod of ours that does not start, of a Lease's owner that is gone; `change` makes another one of it."""
    made = pod("other", "node-a", "Pending", **labels_of("agent"))
    made["metadata"]["namespace"] = "nodedevice-system"
    change(made)
    server.objects[PODS].append(made)
    server.objects[LEASES] = []


@pytest.mark.parametrize(
    ("change", "is_shown"),
    [
        (lambda made: None, True),
        (lambda made: made["metadata"].update(namespace="elsewhere"), False),
        (lambda made: made["metadata"].update(labels={}), False),
    ],
    ids=["ours", "of another namespace", "somebody's"],
)
def test_pods_of_the_release_explain(
    run: Run, server: FakeApiServer, change: Callable[[dict[str, dict[str, object]]], object], is_shown: bool
) -> None:
    _other(server, change)
    assert ("pod" in run("check", "--wait-seconds", "0").out.split()) is is_shown


def test_a_nodedevice_that_is_deleted_meanwhile_does_not_keep_the_others(run: Run, server: FakeApiServer) -> None:
    _unready(server, "a", "b")
    server.fault = lambda request: status(404, name="a") if request.path.endswith("/a.example.com.gpu") else None
    lines = run("check", "--wait-seconds", "0").out.splitlines()
    assert [line.split("  ")[-1] for line in lines[-2:]] == [
        "2 of 2 available; ForeignOwner",
        "2 of 2 available; ForeignOwner: another owns it",
    ]
