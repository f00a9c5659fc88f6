"""When a watch is continued, when a list comes first, and when it is stale. Pure: a script of what happens, by the second."""

from dataclasses import dataclass, field

import pytest
from nodedevice_agent.kube.watch_state import (
    CATCH_UP_SECONDS,
    GRACE_SECONDS,
    RELIST_SECONDS,
    SILENCE_SECONDS,
    STABLE_SECONDS,
    WatchState,
    number,
)


@dataclass
class Played:
    """A watch that was listed at version 10. Each step is a method and how many seconds pass before it."""

    now: float = 1000.0
    version: int = 10
    state: WatchState = field(init=False)

    def __post_init__(self) -> None:
        self.state = WatchState(self.now)
        self.list()

    def list(self) -> None:
        self.state.listed(str(self.version), self.now)

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

    def fail(self) -> None:
        self.state.failed(self.now)

    def silence(self) -> None:
        self.state.failed(self.now, is_silent=True)

    def missed(self) -> None:
        self.state.missed()

    def play(self, script: str) -> None:
        for step in script.split():
            if step.isdecimal():
                self.now += int(step)
            else:
                getattr(self, step)()


@pytest.mark.parametrize(
    ("script", "is_list_due", "failures"),
    [
        pytest.param("open 1 hear 300 end", False, 0, id="an event, and an end in order"),
        pytest.param("open 60 hear 1 end", False, 0, id="a bookmark is enough"),
        pytest.param("open 30 end", False, 0, id="nothing, and it lasted"),
        pytest.param("open 1 end", True, 1, id="nothing, and it ended at once"),
        pytest.param("open repeat end", True, 1, id="the last event again, and it ended at once"),
        pytest.param("open replay end", True, 1, id="an old event again, and it ended at once"),
        pytest.param("open end open end open end", True, 3, id="ended at once three times"),
        pytest.param("open end list open hear end", False, 0, id="ended at once, and then brought something"),
        pytest.param("open end list open 30 end", False, 0, id="ended at once, and then lasted"),
        pytest.param("open hear 1 fail", True, 1, id="cut"),
        pytest.param("open 30 fail list open 30 fail", True, 1, id="cut now and then by a proxy"),
        pytest.param("fail fail", True, 2, id="unreachable"),
        pytest.param("open fail list open fail", True, 2, id="too old again and again"),
        pytest.param("open 90 silence list open 90 silence", True, 1, id="silent again and again"),
    ],
)
def test_what_comes_next(script: str, is_list_due: bool, failures: int) -> None:
    played = Played()
    played.play(script)
    assert (played.state.is_list_due(played.now), played.state.failures) == (is_list_due, failures)


def test_a_list_comes_now_and_then_although_all_is_well() -> None:
    played = Played()
    while played.now < 1000 + RELIST_SECONDS:
        assert not played.state.is_list_due(played.now)
        played.play("open 60 hear 60 hear 60 end")
    assert played.state.is_list_due(played.now)
    played.list()
    assert not played.state.is_list_due(played.now)


SILENT = int(SILENCE_SECONDS)
GRACE = int(GRACE_SECONDS) + 1
CYCLE = SILENT + GRACE


@pytest.mark.parametrize(
    ("script", "is_stale"),
    [
        pytest.param("open 60 hear 60 hear 60", False, id="bookmarks"),
        pytest.param(f"open hear {SILENT} silence", True, id="silent after it had brought something"),
        pytest.param(
            f"open hear {SILENT} silence list open {SILENT} silence list open", True, id="and the next one too"
        ),
        pytest.param(f"open hear {SILENT} silence list open hear", False, id="heard again"),
        pytest.param(f"open hear {SILENT} silence list open repeat", False, id="a kind that does not change"),
        pytest.param(f"open {SILENT} silence list open {SILENT} silence list open {SILENT}", False, id="a quiet kind"),
        pytest.param(f"open {SILENT} silence list missed open", True, id="a change that it did not bring"),
        pytest.param(f"open {CYCLE} silence", True, id="no list after a silent one"),
        pytest.param(f"open end {CYCLE} list open", True, id="ends at once each time"),
        pytest.param(f"open replay end {CYCLE} list open replay", True, id="replays an old event each time"),
        pytest.param(f"open fail {CYCLE} list open", True, id="breaks at once each time"),
        pytest.param(f"open hear fail {CYCLE} fail list", True, id="lists succeed, and no watch"),
        pytest.param(f"open hear fail {CYCLE} fail list open", False, id="open again after an outage"),
        pytest.param(f"open fail {CYCLE} fail list open", False, id="cut at once by an outage that is over"),
        pytest.param(
            "open 35 fail list open 35 fail list open 35 fail list open 35", False, id="an idle limit of 35 s"
        ),
        pytest.param("open end open 35 end open 35 end open 35", False, id="an idle limit that is kept in order"),
    ],
)
def test_whether_it_is_stale(script: str, is_stale: bool) -> None:
    played = Played()
    played.play(script)
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
    played = Played()
    assert played.state.listed(version, played.now, known_version) is is_restored
    assert played.state.version == version
    # from there on it is as any other
    assert not played.state.listed(str(int(version) + 1), played.now)


def test_the_last_version_is_the_one_to_continue_from() -> None:
    played = Played()
    played.play("open hear hear repeat end")
    assert played.state.version == "12"


def test_before_the_first_list_nothing_is_known_and_nothing_doubtful() -> None:
    state = WatchState(5.0)
    assert (state.version, state.failures, state.has_brought, state.is_doubtful) == ("", 0, False, False)
    assert state.is_list_due(5.0)


@pytest.mark.parametrize(("seconds", "is_of_use"), [(STABLE_SECONDS, True), (STABLE_SECONDS - 1, False)])
def test_a_watch_that_was_open_for_long_was_of_use(seconds: float, is_of_use: bool) -> None:
    state = WatchState(0.0)
    state.listed("10", 0.0)
    state.opened(0.0)
    assert state.ended(seconds) is is_of_use


def test_the_doubt_about_a_silent_watch_ends_with_the_next_one() -> None:
    state = WatchState(0.0)
    state.listed("10", 0.0)
    state.opened(0.0)
    state.failed(100.0, is_silent=True)
    assert state.is_doubtful
    state.opened(100.0)
    state.ended(100.0 + STABLE_SECONDS)
    assert not state.is_doubtful


def test_a_watch_is_stable_before_proxies_end_it_and_silent_after_a_bookmark_is_due() -> None:
    assert STABLE_SECONDS < 30 < CATCH_UP_SECONDS < 60 < SILENCE_SECONDS < RELIST_SECONDS


@pytest.mark.parametrize(
    ("version", "expected"),
    [("12", 12), ("", 0), ("abc", 0), ("-3", 0), ("9" * 19, 10**19 - 1), ("1" * 20, 0), ("1" * 40, 0)],
)
def test_versions_as_numbers(version: str, expected: int) -> None:
    assert number(version) == expected
