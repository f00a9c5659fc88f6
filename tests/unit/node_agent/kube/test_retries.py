"""Retries of requests: with growing pauses, which begin again after long success."""

from types import SimpleNamespace

import pytest
from nodedevice_agent.kube import retries
from nodedevice_agent.kube.retries import LONGEST_PAUSE_SECONDS, until_done
from nodedevice_kube.api_errors import Gone, Unavailable

LOST = Unavailable("watching", "pods", "lost")


class Attempts:
    """Each attempt takes some seconds and ends so; `pauses`: the number of failures before each pause."""

    def __init__(self, *attempts: tuple[float, Exception | None]) -> None:
        self.now = 1000.0
        self.pauses: list[int] = []
        self._attempts = iter(attempts)

    async def once(self) -> None:
        seconds, error = next(self._attempts)
        self.now += seconds
        if error is not None:
            raise error

    def pause_seconds(self, failures: int, *_: object) -> float:
        self.pauses.append(failures)
        return 0.0


def attempts(monkeypatch: pytest.MonkeyPatch, *each: tuple[float, Exception | None]) -> Attempts:
    made = Attempts(*each)
    monkeypatch.setattr(retries, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(retries, "pause_seconds", made.pause_seconds)
    return made


async def test_pauses_grow_and_begin_again_after_what_worked_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = attempts(monkeypatch, (0, LOST), (LONGEST_PAUSE_SECONDS, LOST), (LONGEST_PAUSE_SECONDS + 1, LOST), (0, None))
    await until_done(made.once)
    assert made.pauses == [1, 2, 1]
    # that is a failure of its own
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


async def test_an_error_that_the_caller_handles_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    made = attempts(monkeypatch, (0, LOST), (0, Gone("watching", "pods", "too old", 410)))
    with pytest.raises(Gone):
        await until_done(made.once, but=Gone)
    assert made.pauses == [1]
