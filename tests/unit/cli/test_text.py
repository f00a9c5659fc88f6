"""Text for a terminal: what is shown of names that others have given, widths, times and counts."""

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from kubectl_nodedevice import text

_NOW: Final = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain words", "plain words"),
        ("a\x1b[31mb", "a[31mb"),
        ("a\nb\tc", "a b c"),
        ("a\u3000b\u2028c\u2029d", "a b c d"),
        ("a\u202eb\x00c", "abc"),
        ("é\n漢", "é 漢"),
    ],
)
def test_what_steers_a_terminal_is_left_out(given: str, shown: str) -> None:
    assert text.plain(given) == shown


@pytest.mark.parametrize(
    ("given", "columns"), [("", 0), ("abc", 3), ("漢字", 4), ("\uff21", 2), ("e\u0301", 1), ("é", 1)]
)
def test_how_wide_it_is(given: str, columns: int) -> None:
    assert text.width(given) == columns


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2026-11-28T10:00:00Z", _NOW),
        ("2026-11-28T11:00:00+01:00", _NOW),
        ("2026-11-28T10:00:00", _NOW),
        ("", None),
        ("soon", None),
    ],
)
def test_a_time(given: str, expected: datetime | None) -> None:
    assert text.moment(given) == expected


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (86_399, "23 h")),
        *((86_400, "1 d"), (200 * 86_400, "200 d")),
    ],
)
def test_how_long_ago(seconds: int, shown: str) -> None:
    assert text.age((_NOW - timedelta(seconds=seconds)).isoformat(), _NOW) == shown


@pytest.mark.parametrize(("number", "shown"), [(0, "0 devices"), (1, "1 device"), (1234, "1,234 devices")])
def test_a_count(number: int, shown: str) -> None:
    assert text.counted(number, "device") == shown


def test_some_names() -> None:
    assert text.some([]) == ""
    assert text.some(["a", "b", "c"]) == "a, b, c"
    assert text.some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert text.some(["a", "b"], 1) == "a and 1 more"
