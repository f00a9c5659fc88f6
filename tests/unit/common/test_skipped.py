"""An object that cannot be decoded is one line of the log, with all that somebody needs to remove it."""

import logging
from typing import Any

import pytest
from nodedevice_common import skipped
from nodedevice_common.skipped import forget, log_skipped

log = logging.getLogger(__name__)
# of each record, whatever is logged
_STANDARD = vars(logging.LogRecord("", 0, "", 0, "", None, None)).keys() | {"message", "asctime"}


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [{key: value for key, value in vars(each).items() if key not in _STANDARD} for each in caplog.records]


@pytest.mark.parametrize(
    ("namespace", "name", "place", "which"),
    [
        ("ns", "a", {"namespace": "ns", "object": "a"}, "pods a -n ns"),
        ("", "a", {"object": "a"}, "pods a"),
        ("", "", {"object": ""}, "pods ..."),
    ],
)
def test_it_is_named_with_the_commands(
    namespace: str, name: str, place: dict[str, str], which: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_skipped(log, "pods", namespace, name, ValueError("a number"))
    remedy = f"correct it (kubectl edit {which}) or remove it (kubectl delete {which})"
    assert fields(caplog) == [{"kind": "pods", **place, "error": "a number", "remedy": remedy}]
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", "cannot decode object; skipping it")
    ]


def test_once_each_as_long_as_it_is_among_the_last_of_so_many(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skipped, "_MOST", 2)

    def logged(*names: str) -> list[str]:
        caplog.clear()
        for name in names:
            log_skipped(log, "pods", "ns", name, ValueError("x"))
        return [each["object"] for each in fields(caplog)]

    assert logged("a", "a", "b", "a", "b") == ["a", "b"]
    assert logged("c", "b", "a") == ["c", "a"]
    log_skipped(log, "pods", "ns", "a", ValueError("another problem"))
    forget()
    assert logged("a") == ["a"]
