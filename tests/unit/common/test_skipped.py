"""An object that cannot be decoded is one line of the log, with all that somebody needs to remove it."""

import logging

import pytest
from nodedevice_common.undecodable_objects import forget, log_skipped

from tests.fakes.log_lines import log_lines

log = logging.getLogger(__name__)


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
    fields = {"kind": "pods", **place, "error": "a number", "remedy": remedy}
    assert log_lines(caplog.records) == [("ERROR", "cannot decode object; skipping it", fields)]


def test_once_each_as_long_as_it_is_among_the_last_of_so_many(caplog: pytest.LogCaptureFixture) -> None:
    def logged(*names: str) -> list[str]:
        caplog.clear()
        for name in names:
            log_skipped(log, "pods", "ns", name, ValueError("x"))
        return [vars(each)["object"] for each in caplog.records]

    forget()
    assert logged("a", "a", "b", "a", "b") == ["a", "b"]
    logged(*(f"n{number}" for number in range(1023)))
    assert logged("b", "a") == ["a"]
