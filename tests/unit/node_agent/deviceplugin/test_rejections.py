"""What is told of refused registrations: the last few, each once, until they are old."""

import pytest
from nodedevice_agent.deviceplugin import rejections as refusals
from nodedevice_agent.deviceplugin.rejections import Refusals


@pytest.fixture
def time() -> list[float]:
    return [0.0]


@pytest.fixture
def refused(time: list[float]) -> Refusals:
    return Refusals(lambda: time[0])


def test_each_is_news_once_however_often_it_is_said(refused: Refusals) -> None:
    assert refused.told() == ""
    for _ in range(3):
        refused.add("Version", ValueError("too old"))
    assert refused.is_news.is_set()
    assert refused.told() == "too old"
    refused.add("Version", ValueError("too old"))
    assert not refused.is_news.is_set()


def test_it_is_over_when_nobody_has_said_it_for_long(refused: Refusals, time: list[float]) -> None:
    for text in ("once", "again and again"):
        refused.add("Version", ValueError(text))
    time[0] = refusals._LASTING_SECONDS / 2
    refused.add("Version", ValueError("again and again"))
    time[0] = refusals._LASTING_SECONDS
    assert refused.told() == "again and again"
    refused.add("Version", ValueError("once"))
    assert refused.is_news.is_set()


def test_whoever_says_something_else_each_time_does_not_fill_the_lease(refused: Refusals) -> None:
    for number in range(1000):
        refused.add("Version", ValueError(f"{number} {'x' * 10_000}"))
    lines = refused.told().splitlines()
    assert [line.split()[0] for line in lines] == ["995", "996", "997", "998", "999"]
    assert max(map(len, lines)) == refusals._LONGEST


def test_a_refusal_is_one_line_whatever_is_in_it(refused: Refusals) -> None:
    refused.add("Version", ValueError("a\nb\r\n\tc  d"))
    assert refused.told() == "a b c d"
