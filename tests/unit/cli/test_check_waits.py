"""How long `check` waits, for what, and what it says meanwhile."""

import pytest

from tests.unit.cli.api_server import LEASES, PODS, Answer, FakeApiServer, status
from tests.unit.cli.conftest import Clock, Run
from tests.unit.cli.objects import NODE_DEVICES, condition, labels_of, node_device, pod


def _unready(server: FakeApiServer, *names: str) -> None:
    conditions = [condition("AgentReady"), condition("Ready", "False", "ForeignOwner", "another owns it")]
    server.objects[NODE_DEVICES] = [node_device(name, conditions=conditions) for name in names]


def test_it_waits_until_all_is_good(run: Run, server: FakeApiServer, clock: Clock) -> None:
    def be_ready() -> None:
        if len(clock.slept) == 2:
            server.objects[NODE_DEVICES] = [node_device("node-a")]

    _unready(server, "node-a")
    clock.meanwhile = be_ready
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


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(short=True), "cannot be reached"),
        (status(429), "has no room for"),
        (status(500, "no leader"), "failed at"),
        (status(503), "failed at"),
    ],
)
def test_a_server_that_does_not_answer_yet_is_waited_for(
    run: Run, server: FakeApiServer, clock: Clock, answer: Answer, words: str
) -> None:
    def recover() -> None:
        if clock.now >= 110:
            server.fault = lambda _: None

    server.fault = lambda _: answer
    clock.meanwhile = recover
    ran = run("check")
    [line] = ran.err.splitlines()
    assert (ran.status, line.startswith("waiting up to "), words in line) == (0, True, True), ran


@pytest.mark.parametrize("answer", [status(401), status(400), status(499)])
def test_a_server_that_refuses_is_not_waited_for(run: Run, server: FakeApiServer, clock: Clock, answer: Answer) -> None:
    server.fault = lambda _: answer
    ran = run("check")
    assert (ran.status, clock.slept, ran.err.count("\n")) == (2, [], 1)


@pytest.mark.parametrize(
    ("namespace", "labels", "is_shown"),
    [
        ("nodedevice-system", labels_of("agent"), True),
        ("elsewhere", labels_of("agent"), False),
        ("nodedevice-system", {}, False),
    ],
    ids=["ours", "of another namespace", "somebody's"],
)
def test_pods_of_the_release_explain(
    run: Run, server: FakeApiServer, namespace: str, labels: dict[str, str], is_shown: bool
) -> None:
    """Such as one that does not start, whose Lease is gone."""
    made = pod("other", phase="Pending", **labels)
    made["metadata"]["namespace"] = namespace
    server.objects[PODS].append(made)
    server.objects[LEASES] = []
    assert ("pod" in run("check", "--wait-seconds", "0").out.split()) is is_shown


def test_a_nodedevice_that_is_deleted_meanwhile_does_not_keep_the_others(run: Run, server: FakeApiServer) -> None:
    _unready(server, "a", "b")
    server.fault = lambda request: status(404, name="a") if request.path.endswith("/a.example.com.gpu") else None
    first, second = run("check", "--wait-seconds", "0").out.splitlines()[-2:]
    assert first.endswith("  2 of 2 available; ForeignOwner")
    assert second.endswith("  2 of 2 available; ForeignOwner: another owns it")
