"""A kind is listed once and watched from then on; what the API server refuses is a sentence on the page."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kubectl_nodedevice.api import _Lines
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.page.command import _api, _view_of, kinds
from kubectl_nodedevice.page.fleet import Fleet
from kubectl_nodedevice.page.follow import Follower
from kubectl_nodedevice.page.views import VIEWS
from kubectl_nodedevice.session import Session
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unreachable

from tests.unit.cli.api_server import FakeApiServer, status
from tests.unit.cli.conftest import ApiOf
from tests.unit.cli.objects import GPU, NODE_DEVICES, node_device

Json = dict[str, Any]
Step = Any


class ScriptedApi:
    """Answers each request with the next of `steps`: objects of a list, events of a watch, a version, or an error."""

    def __init__(self, *steps: Step) -> None:
        self.steps = [*steps]
        self.asked: list[str] = []
        self.warn: Callable[[str], object] = lambda _: None

    def _next(self, request: str) -> Any:
        self.asked.append(request)
        found = self.steps.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def listed(self, what: str, path: str, query: Mapping[str, str], take: Callable[[Json], object]) -> str:
        for each in self._next("list"):
            if isinstance(each, str):
                self.warn(each)
            else:
                take(each)
        return "7"

    def version(self, what: str, path: str, query: Mapping[str, str]) -> str:
        return str(self._next("check"))

    def watch(self, what: str, path: str, query: Mapping[str, str], take: Callable[[Json], object]) -> None:
        for kind, obj in self._next(f"watch {query['resourceVersion']}"):
            take({"type": kind, "object": obj})


def followed(*steps: Step) -> tuple[Fleet, ScriptedApi]:
    """After a step of the follower for each of the steps."""
    fleet, api = Fleet(), ScriptedApi(*steps)
    stand_in: Any = api
    follower = Follower(stand_in, next(iter(kinds(fleet))), fleet)
    while api.steps:
        follower.step()
    return fleet, api


def at(node: str, version: int = 8) -> Json:
    found = node_device(node)
    found["metadata"]["resourceVersion"] = str(version)
    return found


def nodes(fleet: Fleet) -> set[str]:
    return {name.removesuffix(f".{GPU.replace('/', '.')}") for name in fleet.names()}


def source(fleet: Fleet) -> Json:
    """How current its one kind is."""
    [found] = fleet.sources()["sources"].values()
    return dict(found)


def test_a_list_and_then_its_changes() -> None:
    events = [("ADDED", at("c", 8)), ("DELETED", at("a", 9)), ("BOOKMARK", {"metadata": {"resourceVersion": "12"}})]
    fleet, api = followed([at("a"), at("b")], events, [("MODIFIED", at("b", 13))])
    assert nodes(fleet) == {"b", "c"}
    assert api.asked == ["list", "watch 7", "watch 12"]


def test_a_version_that_is_too_old_is_listed_again_and_what_is_gone_goes() -> None:
    fleet, api = followed([at("a"), at("b")], [("ERROR", {"code": 410})], [at("b")])
    assert api.asked == ["list", "watch 7", "list"]
    assert nodes(fleet) == {"b"}


def test_an_object_that_cannot_be_read_is_named_until_a_list_has_it() -> None:
    found = source(followed([at("a"), "nodedevices: not read: b: it is not YAML"], [])[0])
    assert (found["problem"], found["unread"]) == ("", "nodedevices: not read: b: it is not YAML")
    fleet, _ = followed(["nodedevices: not read: b"], [("ERROR", {"code": 410})], [at("b")])
    assert source(fleet)["unread"] == ""


@pytest.mark.parametrize(
    ("error", "problem", "is_forbidden"),
    [
        (Forbidden("GET", "nodedevices", "eve may not", 403, remedy="get a role"), "eve may not; get a role", True),
        (NotFound("GET", "nodedevices", "no such kind", 404, remedy="install"), "no such kind; install", False),
        (Unreachable("GET", "nodedevices", "refused"), "refused", False),
        (LoginProblem("the token has expired", "log in again"), "the token has expired; log in again", False),
    ],
    ids=["forbidden", "no CRD", "unreachable", "expired"],
)
def test_a_failure_is_a_sentence_until_it_is_over(error: Exception, problem: str, is_forbidden: bool) -> None:
    found = source(followed(error)[0])
    assert (found["problem"], found["isForbidden"], found["asOf"]) == (problem, is_forbidden, 0.0)
    fleet, api = followed([at("a")], error, [at("a"), at("b")])
    found = source(fleet)
    assert (found["problem"], found["asOf"] > 0, nodes(fleet)) == ("", True, {"a", "b"})
    assert api.asked[-1] == "list"


@pytest.mark.parametrize("status_code", [403, 410])
def test_a_refused_watch_leaves_the_connection_usable(api_of: ApiOf, server: FakeApiServer, status_code: int) -> None:
    server.fault = lambda request: status(status_code) if "watch" in request.query else None
    api, found = api_of(), list[object]()
    with pytest.raises(ApiError):
        api.watch("nodedevices", NODE_DEVICES, {}, lambda _: None)
    api.listed("nodedevices", NODE_DEVICES, {}, found.append)
    assert len(found) == len(server.objects[NODE_DEVICES])


def test_a_watch_that_brings_nothing_in_its_time_is_no_failure_of_the_page() -> None:
    silent = ApiError("GET", "nodedevices", "no answer within 90 s")
    silent.__cause__ = TimeoutError()
    fleet, _ = followed([at("a")], silent)
    assert (source(fleet)["problem"], nodes(fleet)) == ("", {"a"})


def test_the_first_event_after_a_silence_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fleet, seen = [0.0], Fleet(), list[bool]()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def silent() -> Iterator[tuple[str, Json]]:
        yield "MODIFIED", at("a", 8)
        clock[0] = 200.0
        raise ApiError("GET", "nodedevices", "no answer within 90 s") from TimeoutError()

    def alive() -> Iterator[tuple[str, Json]]:
        yield "MODIFIED", at("a", 13)
        seen.append(source(fleet)["isStale"])

    stand_in: Any = ScriptedApi([at("a")], silent(), [at("a")], alive())
    follower = Follower(stand_in, next(iter(kinds(fleet))), fleet)
    for _ in range(3):
        follower.step()
    assert source(fleet)["isStale"]
    follower.step()
    assert seen == [False]


def test_a_watch_is_cut_into_events_wherever_its_pieces_end() -> None:
    found: list[Any] = []
    lines = _Lines(found.append)
    for piece in (b'{"a":', b'1}\n{"b"', b":2}\n", b"no JSON\n", b'{"c":3}\n{"d":4}\n{"e"'):
        lines.feed(piece)
    assert found == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}]


def test_a_log_in_program_runs_once_for_all_threads(api_of: ApiOf, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    session.api = api = api_of()
    monkeypatch.setitem(VIEWS, "api", lambda own, _: own.api)
    for each in (_api(session, 1.0), _view_of(session)("api", {})):
        assert (each is api, each.credentials is api.credentials) == (False, True)
