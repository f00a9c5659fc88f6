"""How `cordon` and `uncordon` go about it: in whose name, how long they wait, and one node after the other."""

import json
import os
import signal
import sys
from datetime import UTC, datetime, tzinfo
from typing import Final, Self

import pytest
from nodedevice_kube.api_errors import Conflict

from tests.unit.cli.api_server import Answer, FakeApiServer, Request, status
from tests.unit.cli.conftest import Clock, Refused, Run, Terminal
from tests.unit.cli.objects import GPU, NODE_DEVICES, THEN, condition, node_device

_CORDON: Final = ("cordon", "node-b", "--device", "gpu-0", "--reason", "fan")
_ALL: Final = ("--resource", GPU, "--all-nodes")


def stored(server: FakeApiServer, node: str = "node-b") -> list[dict[str, str]]:
    """The node's cordons."""
    [spec] = [each["spec"] for each in server.objects[NODE_DEVICES] if each["spec"]["nodeName"] == node]
    found: list[dict[str, str]] = spec.get("cordonedDevices", [])
    return found


def _patches(server: FakeApiServer) -> int:
    return sum(each.method == "PATCH" for each in server.requests)


# -- in whose name ------------------------------------------------------------------------------------------------------------


class _InTokyo(datetime):
    """The clock of a machine there."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 11, 28, 10, tzinfo=UTC) if tz else cls(2026, 11, 28, 19)


def test_what_is_noted(run: Run, server: FakeApiServer, new_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_nodedevice.commands.cordon.datetime", _InTokyo)
    run(*_CORDON, "--wait", "0")
    assert stored(server) == [{"id": "gpu-0", "reason": "fan", "by": "alice", "at": "2026-11-28T10:00:00Z"}]
    review = server.requests[0]
    assert (review.method, review.path) == ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
    assert review.body == {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.mark.parametrize("code", [404, 403, 500])
def test_a_server_that_does_not_say_who_one_is(run: Run, server: FakeApiServer, code: int) -> None:
    server.fault = lambda request: status(code, "no") if request.path.endswith("reviews") else None
    for words, name in (((), "u"), (("--as", "eve", "--take-over"), "eve")):
        assert run(*_CORDON, "--wait", "0", *words).status == 0
        assert stored(server)[0]["by"] == name


def test_the_longest_reason(run: Run, server: FakeApiServer) -> None:
    assert run(*_CORDON[:-1], "x" * 1024, "--wait", "0").status == 0
    assert len(stored(server)[0]["reason"]) == 1024
    assert run(*_CORDON[:-1], "x" * 1025).err == "error: --reason has 1,025 characters; it needs 1 to 1,024\n"


# -- of what ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("node-b", *_ALL), ("--device", "gpu-0", *_ALL), ("--all-nodes",)])
def test_all_nodes_are_of_one_whole_resource(run: Run, server: FakeApiServer, words: tuple[str, ...]) -> None:
    for verb, more in (("cordon", ("--reason", "fan")), ("uncordon", ())):
        ran = run(verb, *words, "--yes", *more)
        needed = "--all-nodes needs --resource, and neither NODE nor --device"
        assert (ran.status, ran.err) == (2, f"error: {needed}; {verb} --resource NAME --all-nodes\n")
    assert not _patches(server)


# -- how long it waits --------------------------------------------------------------------------------------------------------


def test_it_waits_a_quarter_of_a_minute_for_the_agent(run: Run, clock: Clock) -> None:
    ran = run(*_CORDON)
    assert (ran.status, "not in force yet" in ran.out) == (1, True)
    assert clock.slept == [0.25] * 60


def test_it_waits_no_longer_than_the_agent_takes(run: Run, server: FakeApiServer, clock: Clock) -> None:
    def honour() -> None:
        if len(clock.slept) == 3:
            server.objects[NODE_DEVICES][1]["status"]["devices"][0]["cordonedSince"] = THEN

    clock.meanwhile = honour
    assert run(*_CORDON).out == "gpu-0 on node-b: cordoned; free, so it is out of service now\n"
    assert clock.slept == [0.25] * 3


def test_it_waits_for_no_agent_that_has_fallen_silent(run: Run, server: FakeApiServer, clock: Clock) -> None:
    def silence() -> None:
        server.objects[NODE_DEVICES][1]["status"]["conditions"] = [condition("AgentReady", "Unknown", "LeaseExpired")]

    clock.meanwhile = silence
    assert "takes effect when the agent on node-b reports again" in run(*_CORDON).out
    assert clock.slept == [0.25]


def test_each_try_comes_a_little_later(refused: Refused, server: FakeApiServer, clock: Clock) -> None:
    """As the other one tries again, too."""
    server.fault = lambda request: status(409, "modified") if request.method == "PATCH" else None
    found = refused(*_CORDON)
    problem = "nodedevices node-b.example.com.gpu was changed 20 times while its cordons were"
    assert (type(found), found.problem, found.remedy, found.status) == (Conflict, problem, "try again", 409)
    assert clock.slept == pytest.approx([0.05 * number for number in range(20)])


# -- on all nodes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typed", "ended", "patches"), [("y\n", 0, 2), ("n\n", 130, 0), ("\n", 130, 0)])
def test_a_person_is_asked(
    run: Run, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, typed: str, ended: int, patches: int
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    ran = run("cordon", *_ALL, "--reason", "fan")
    assert ran.status == ended
    assert ran.err.startswith(f"cordon every device of {GPU} on 2 nodes? [y/N]:")
    assert _patches(server) == patches


def test_nodes_where_others_give_the_devices_out_are_left(run: Run, server: FakeApiServer) -> None:
    for node, served_by in (("node-c", "kubelet"), ("node-d", "dra"), ("node-e", "dra")):
        server.objects[NODE_DEVICES].append(node_device(node, agent={"servedBy": served_by}))
    server.objects[NODE_DEVICES][-1]["spec"]["cordonedDevices"] = [{"id": "*", "by": "alice"}]
    left = "nodes left out: nodedevice does not give example.com/gpu out there\n"
    rest = "Agents honour it within seconds:\n   kubectl nodedevice devices --resource example.com/gpu\n"
    ran = run("cordon", *_ALL, "--yes", "--reason", "fan")
    assert (ran.status, ran.out) == (0, f"2 nodes cordoned: node-a, node-b\n3 {left}{rest}")
    assert [each["id"] for each in stored(server, "node-a")] == ["gpu-1", "*"]
    # ... but for a cordon to lift
    ran = run("uncordon", *_ALL, "--yes")
    one_by_one = "node-a: uncordoned; cordoned one by one: gpu-1 by bob: ecc\n"
    lifts = f"   kubectl nodedevice uncordon node-a --resource {GPU} --device gpu-1 --take-over\n"
    lines = f"3 nodes uncordoned: node-a, node-b, node-e\n{one_by_one}{lifts}2 {left}{rest}"
    assert (ran.status, ran.out) == (1, lines)
    assert [each["id"] for each in stored(server, "node-a")] == ["gpu-1"]


def test_anothers_cordons_are_named_and_stay(run: Run, server: FakeApiServer) -> None:
    for found, who, reason in zip(server.objects[NODE_DEVICES], ("bob", "alice"), ("move", "fan"), strict=True):
        found["spec"]["cordonedDevices"] = [{"id": "*", "by": who, "reason": reason}]
    ran = run("cordon", *_ALL, "--yes", "--reason", "fan")
    words = "1 node cordoned already by bob: move; --take-over changes that: node-a\n1 node had it already: node-b\n"
    assert (ran.status, ran.out.startswith(words)) == (1, True)
    assert run("cordon", *_ALL, "--yes", "--reason", "fan", "--take-over").status == 0
    assert stored(server, "node-a")[0]["by"] == "alice"


def _ends(server: FakeApiServer, node: str, answer: Answer | None) -> None:
    """The change of the node, by a response of the server or by Ctrl-C."""

    def fault(request: Request) -> Answer | None:
        is_meant = request.method == "PATCH" and node in request.path
        if is_meant and answer is None:
            os.kill(os.getpid(), signal.SIGINT)
        return answer if is_meant else None

    server.fault = fault


def test_a_node_that_keeps_changing_does_not_keep_the_others(run: Run, server: FakeApiServer, clock: Clock) -> None:
    _ends(server, "node-a", status(409, "modified"))
    ran = run("cordon", *_ALL, "--yes", "--reason", "fan")
    assert (ran.status, ran.out.splitlines()[0]) == (2, "1 node cordoned: node-b")
    assert ran.err.startswith("error: node-a: nodedevices node-a.example.com.gpu was changed 20 times")


@pytest.mark.parametrize("answer", [status(401), Answer(short=True)], ids=["401", "none"])
def test_where_no_node_can_be_changed_the_first_one_ends_it(run: Run, server: FakeApiServer, answer: Answer) -> None:
    _ends(server, "node-", answer)
    ran = run("cordon", *_ALL, "--yes", "--reason", "fan")
    assert (ran.status, ran.out, _patches(server)) == (2, "", 1)
    assert ran.err.count("error: ") == 1


@pytest.mark.parametrize(
    ("answer", "ended", "words"),
    [
        (Answer(short=True), 2, ["n2: ", "whether it is cordoned is not known", "error: ", "cannot be reached"]),
        (status(401), 2, ["error: n2: the API server ", "; log in again"]),
        (None, 130, ["n2: interrupted: whether it is cordoned is not known"]),
    ],
    ids=["no answer", "401", "Ctrl-C"],
)
def test_what_was_done_is_reported_when_the_work_ends(
    run: Run, server: FakeApiServer, answer: Answer | None, ended: int, words: list[str]
) -> None:
    server.objects[NODE_DEVICES] = [node_device(f"n{number}") for number in range(5)]
    _ends(server, "n2", answer)
    before = signal.getsignal(signal.SIGINT)
    ran = run("cordon", *_ALL, "--yes", "--reason", "fan")
    assert (ran.status, [each for each in words if each not in ran.err]) == (ended, [])
    assert ran.out.startswith("2 nodes cordoned: n0, n1\n2 nodes not tried\n")
    assert signal.getsignal(signal.SIGINT) == before
    found = json.loads(run("cordon", *_ALL, "--yes", "--reason", "new", "-o", "json").out)
    assert ([each["node"] for each in found["items"]], found["notTried"]) == (["n0", "n1"], 2)


def test_who_is_tired_of_waiting_knows_what_was_done(run: Run, server: FakeApiServer, clock: Clock) -> None:
    clock.meanwhile = lambda: os.kill(os.getpid(), signal.SIGINT)
    ran = run(*_CORDON)
    assert (ran.status, ran.out.partition(";")[0]) == (130, "gpu-0 on node-b: cordoned")


def test_a_name_is_one_line_of_some_length(run: Run, server: FakeApiServer) -> None:
    server.user = " a\x1b\n" + "b" * 200
    run(*_CORDON, "--wait", "0")
    assert stored(server)[0]["by"] == f"a {'b' * 126}"
    server.user = "\x07"
    for words in (_CORDON, ("uncordon", *_CORDON[1:4], "--by", " ")):
        assert run(*words).err == "error: your own name is not known here; give it by --by\n"
