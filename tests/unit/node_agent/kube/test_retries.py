"""Retries of requests, with growing pauses."""

import pytest
from nodedevice_agent.kube import retries
from nodedevice_agent.kube.retries import until_done
from nodedevice_kube.api_errors import Gone, Unavailable

LOST = Unavailable("watching", "pods", "lost")


class Attempts:
    """errors: of each attempt; `pauses`: the number of failures before each pause."""

    def __init__(self, *errors: Exception | None) -> None:
        self.pauses: list[int] = []
        self._errors = iter(errors)

    async def once(self) -> None:
        error = next(self._errors)
        if error is not None:
            raise error

    def pause_seconds(self, failures: int, *_: object) -> float:
        self.pauses.append(failures)
        return 0.0


def attempts(monkeypatch: pytest.MonkeyPatch, *errors: Exception | None) -> Attempts:
    made = Attempts(*errors)
    monkeypatch.setattr(retries, "pause_seconds", made.pause_seconds)
    return made


async def test_pauses_grow_and_the_failure_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = attempts(monkeypatch, LOST, LOST, LOST, None)
    await until_done(made.once)
    assert made.pauses == [1, 2, 3]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_an_error_that_the_caller_handles_is_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    made = attempts(monkeypatch, LOST, Gone("watching", "pods", "too old", 410))
    with pytest.raises(Gone):
        await until_done(made.once, but=Gone)
    assert made.pauses == [1]
