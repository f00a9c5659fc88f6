"""Text from outside, made fit for a log, a metric, the API server."""

import pytest
from nodedevice_common.text import MAX_SHOWN, clean, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("größe ✓", "größe ✓"),
        ("two\nlines\tand  spaces ", "two lines and spaces"),
        ("\x00\x1b[31m", "??[31m"),
        ("half \udcff", "half ?"),
        (OSError("No such device"), "No such device"),
        (b"octets", "b'octets'"),
        ("", ""),
    ],
)
def test_what_is_shown_is_one_printable_line(text: object, expected: str) -> None:
    assert shown(text) == expected


def test_it_has_at_most_so_many_characters() -> None:
    assert shown("a" * (MAX_SHOWN + 1)) == "a" * MAX_SHOWN
    assert shown("a b c", 3) == "a b"


@pytest.mark.parametrize(("text", "expected"), [("größe\n", "größe\n"), ("a\udcffb", "a?b")])
def test_what_is_clean_can_be_encoded_and_keeps_the_rest(text: str, expected: str) -> None:
    assert clean(text) == expected
