"""List and watch of one kind as a script, by the second: what is sent next, after which pause, and whether it is stale."""

from dataclasses import dataclass, field

import pytest
from nodedevice_kube.api_errors import (
    ApiError,
    Gone,
    InvalidResponse,
    NotFound,
    Silent,
    Unavailable,
    Unreachable,
    WatchInterrupted,
)
from nodedevice_kube.list_watch import GRACE_SECONDS, SILENCE_SECONDS, ListWatch, Policy, Request, number

RELIST_SECONDS = 900.0
# as the agent, whose lists have a few objects, and as the operator, whose lists have all of a fleet
LISTING = Policy(0.5, 30.0, 30.0, relist_seconds=RELIST_SECONDS)
CHECKING = Policy(0.2, 15.0, 1.0, is_listed_after_failures=False)


def error(kind: type[ApiError], status: int = 0, retry_after: float = 0.0) -> ApiError:
    return kind("watching", "pods", "it failed", status, retry_after_seconds=retry_after)


ERRORS = {
    "cut": error(WatchInterrupted),
    "silent": error(Silent),
    "away": error(Unreachable),
    "expired": error(Gone, 410),
    "kindless": error(NotFound, 404),
    "odd": error(InvalidResponse),
    "busy": error(Unavailable, 429, 7.0),
    "starting": error(Unavailable, 503, 5.0),
}


@dataclass
class Played:
    """A list and watch that was listed at version 10. A number is so many seconds, a key of ERRORS that failure."""

    policy: Policy = LISTING
    now: float = 1000.0
    version: int = 10
    state: ListWatch = field(init=False)

    def __post_init__(self) -> None:
        self.state = ListWatch(self.policy, self.now)
        assert self.next() is Request.LIST
        self.list()

    def next(self) -> Request:
        return self.state.next(self.now)

    def list(self) -> None:
        self.state.listed(str(self.version), self.now)

    def check(self) -> None:
        self.state.checked(str(self.version), self.now)

    def open(self) -> None:
        self.state.opened(self.now)

    def hear(self) -> None:
        self.version += 1
        self.state.heard(str(self.version), self.now)

    def repeat(self) -> None:
        self.state.heard(str(self.version), self.now)

    def replay(self) -> None:
        self.state.heard(str(self.version - 1), self.now)

    def end(self) -> None:
        self.state.ended(self.now)

    def relist(self) -> None:
        self.state.relist(self.now)

    def missed(self) -> None:
        self.state.missed()

    def play(self, script: str) -> "Played":
        for step in script.split():
            if step.isdecimal():
                self.now += int(step)
            elif step in ERRORS:
                self.state.failed(ERRORS[step], self.now)
            else:
                getattr(self, step)()
        return self


@pytest.mark.parametrize(
    ("script", "listing", "checking", "failures"),
    [
        pytest.param("open 1 hear 300 end", "WATCH", "WATCH", 0, id="an event, and an end in order"),
        pytest.param("open 60 hear 1 end", "WATCH", "WATCH", 0, id="a bookmark is enough"),
        pytest.param("open 30 end", "WATCH", "WATCH", 0, id="nothing, and it lasted"),
        pytest.param("open 1 end", "LIST", "CHECK", 1, id="nothing, and it ended at once"),
        pytest.param("open repeat end", "LIST", "CHECK", 1, id="the last event again, and it ended at once"),
        pytest.param("open replay end", "LIST", "CHECK", 1, id="an old event again, and it ended at once"),
        pytest.param("open end open end open end", "LIST", "CHECK", 3, id="ended at once three times"),
        pytest.param("open end list open hear end", "WATCH", "WATCH", 0, id="ended at once, then brought something"),
        pytest.param("open end list open 30 end", "WATCH", "WATCH", 0, id="ended at once, and then lasted"),
        pytest.param("open hear 1 cut", "LIST", "CHECK", 1, id="cut"),
        pytest.param("open hear 1 cut check", "LIST", "WATCH", 1, id="cut, and the store has not gone back"),
        pytest.param("open 30 cut list open 30 cut", "LIST", "CHECK", 1, id="cut now and then by a proxy"),
        pytest.param("away away", "LIST", "CHECK", 2, id="unreachable"),
        pytest.param("open expired list open expired", "LIST", "LIST", 2, id="too old again and again"),
        pytest.param("open hear kindless", "LIST", "LIST", 1, id="the kind went away"),
        pytest.param("open hear odd", "LIST", "LIST", 1, id="a line that cannot be used"),
        pytest.param("open 90 silent list open 90 silent", "LIST", "CHECK", 1, id="silent again and again"),
        pytest.param("busy", "LIST", "CHECK", 1, id="too many requests"),
        pytest.param("open hear relist", "LIST", "LIST", 0, id="another kind has shown that it is behind"),
    ],
)
def test_what_comes_next(script: str, listing: str, checking: str, failures: int) -> None:
    played, checked = Played(LISTING).play(script), Played(CHECKING).play(script)
    assert (played.next().name, checked.next().name) == (listing, checking)
    assert played.state.failures == failures


def test_a_list_comes_now_and_then_although_all_is_well() -> None:
    played = Played()
    while played.now < 1000 + RELIST_SECONDS:
        assert played.next() is Request.WATCH
        played.play("open 60 hear 60 hear 60 end")
    assert played.next() is Request.LIST
    played.list()
    assert played.next() is Request.WATCH


@pytest.mark.parametrize(
    ("policy", "script", "shortest", "longest"),
    [
        pytest.param(LISTING, "open hear", 0, 0, id="all is well"),
        pytest.param(LISTING, "away", 0.5, 1, id="one failure"),
        pytest.param(LISTING, "away away away", 2, 4, id="three"),
        pytest.param(LISTING, "away " * 2000, 15, 30, id="very many"),
        pytest.param(LISTING, "away list", 0, 0, id="a list after a failure, and the watch at once"),
        pytest.param(LISTING, "busy", 7, 7, id="429 with Retry-After"),
        pytest.param(LISTING, "busy away", 1, 2, id="Retry-After holds once"),
        pytest.param(LISTING, "starting", 5, 5, id="503 with Retry-After, and a list is next"),
        pytest.param(CHECKING, "starting", 0.2, 0.4, id="503 with Retry-After, and no list is next"),
        pytest.param(CHECKING, "busy", 7, 7, id="429 with Retry-After, and no list is next"),
        pytest.param(CHECKING, "away " * 9, 0.5, 1, id="many failures before a watch"),
        pytest.param(CHECKING, "expired " * 9, 7.5, 15, id="many failures before a list"),
        pytest.param(CHECKING, "open expired list " * 9 + "open expired", 0.5, 1, id="too old again and again"),
        pytest.param(CHECKING, "away " * 9 + "check expired", 0.2, 0.4, id="too old, right after an outage"),
        pytest.param(CHECKING, "away check", 0, 0, id="a check after a failure, and the watch at once"),
    ],
)
def test_the_pause_before_it(policy: Policy, script: str, shortest: float, longest: float) -> None:
    played = Played(policy).play(script)
    found = [played.state.pause_seconds(random) for random in (0.0, 1.0)]
    assert found == [shortest, longest]


SILENT = int(SILENCE_SECONDS)
GRACE = int(GRACE_SECONDS) + 1
CYCLE = SILENT + GRACE


@pytest.mark.parametrize(
    ("script", "is_stale"),
    [
        pytest.param("open 60 hear 60 hear 60", False, id="bookmarks"),
        pytest.param(f"open hear {SILENT} silent", True, id="silent after it had brought something"),
        pytest.param(f"open hear {SILENT} silent list open {SILENT} silent list open", True, id="and the next one too"),
        pytest.param(f"open hear {SILENT} silent list open hear", False, id="heard again"),
        pytest.param(f"open hear {SILENT} silent list open repeat", False, id="a kind that does not change"),
        pytest.param(f"open {SILENT} silent list open {SILENT} silent list open {SILENT}", False, id="a quiet kind"),
        pytest.param(f"open {SILENT} silent list missed open", True, id="a change that it did not bring"),
        pytest.param(f"open {CYCLE} silent", True, id="no list after a silent one"),
        pytest.param(f"open end {CYCLE} list open", True, id="ends at once each time"),
        pytest.param(f"open replay end {CYCLE} list open replay", True, id="replays an old event each time"),
        pytest.param(f"open cut {CYCLE} list open", True, id="breaks at once each time"),
        pytest.param(f"open hear cut {CYCLE} away list", True, id="lists succeed, and no watch"),
        pytest.param(f"open hear cut {CYCLE} away list open", False, id="open again after an outage"),
        pytest.param(f"open cut {CYCLE} away list open", False, id="cut at once by an outage that is over"),
        pytest.param("open 35 cut list open 35 cut list open 35 cut list open 35", False, id="an idle limit of 35 s"),
        pytest.param("open end open 35 end open 35 end open 35", False, id="an idle limit that is kept in order"),
    ],
)
def test_whether_it_is_stale(script: str, is_stale: bool) -> None:
    played = Played().play(script)
    assert played.state.is_stale(played.now) is is_stale


@pytest.mark.parametrize(
    ("version", "known_version", "is_restored"),
    [
        pytest.param("10", 0, False, id="the same"),
        pytest.param("11", 0, False, id="newer"),
        pytest.param("9", 0, True, id="older than the last list or event"),
        pytest.param("11", 12, True, id="older than the response to a write of before"),
        pytest.param("10", 10, False, id="as old as that response"),
    ],
)
def test_versions_that_go_back_are_those_of_a_restored_server(
    version: str, known_version: int, is_restored: bool
) -> None:
    assert Played().state.listed(version, 1000.0, known_version) is is_restored
    checked = Played(CHECKING).play("open hear cut")
    checked.version = 10
    assert checked.state.checked(version, checked.now, known_version) is (is_restored or version == "10")


def test_a_restored_server_is_listed_at_once() -> None:
    played = Played(CHECKING).play("open hear hear away away")
    assert played.state.checked("11", played.now)
    assert (played.next(), played.state.pause_seconds(1.0)) == (Request.LIST, 0.0)
    assert played.state.listed("11", played.now)
    assert (played.next(), played.state.version) == (Request.WATCH, "11")


@pytest.mark.parametrize(
    ("script", "version", "has_brought"),
    [
        pytest.param("open", "10", False, id="nothing"),
        pytest.param("open repeat", "10", False, id="the version it began with"),
        pytest.param("open hear hear", "12", True, id="two events"),
        pytest.param("open hear replay", "11", True, id="an old one after them"),
        pytest.param("open hear end open", "11", False, id="the next watch has brought nothing yet"),
    ],
)
def test_the_version_to_watch_from(script: str, version: str, has_brought: bool) -> None:
    state = Played().play(script).state
    assert (state.version, state.has_brought) == (version, has_brought)


def test_a_silent_watch_is_in_doubt_until_another_end() -> None:
    assert Played().play("open 90 silent").state.is_doubtful
    assert not Played().play("open hear 90 silent").state.is_doubtful
    assert not Played().play("open 90 silent list open cut").state.is_doubtful


@pytest.mark.parametrize(("version", "found"), [("12", 12), ("", 0), ("abc", 0), ("-1", 0), ("9" * 20, 0)])
def test_versions_are_numbers(version: str, found: int) -> None:
    assert number(version) == found
