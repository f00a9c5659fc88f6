import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.plugins.generic.patterns import matched, wildcard_count


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("ttyUSB*", "ttyUSB12", ("12",)),
        ("ttyUSB*", "ttyUSB", ("",)),
        ("ttyUSB*", "ttyACM0", None),
        ("tty?", "tty7", ("7",)),
        ("tty?", "tty", None),
        ("tty[0-3]", "tty2", ("2",)),
        ("tty[!0-3]", "tty2", None),
        ("tty[!0-3]", "tty4", ("4",)),
        ("a[]]b", "a]b", ("]",)),
        ("a[z-a]", "ab", None),
        ("a[x", "a[x", ()),
        ("*-*", "a-b", ("a", "b")),
        ("plain.name", "plainxname", None),
        ("*", ".hidden", None),
        (".*", ".hidden", ("hidden",)),
        ("*", "line\nbreak", ("line\nbreak",)),
    ],
)
def test_what_wildcards_match(pattern: str, name: str, expected: tuple[str, ...] | None) -> None:
    assert matched(pattern, name) == expected


@pytest.mark.parametrize(
    ("pattern", "count"), [("/dev/fuse", 0), ("/dev/tty*", 1), ("/dev/snd?/c[0-9]*", 3), ("/dev/a[", 0)]
)
def test_wildcard_count(pattern: str, count: int) -> None:
    assert wildcard_count(pattern) == count


@given(st.text(st.sampled_from("ab-]![*?^\\."), max_size=6), st.text(st.sampled_from("ab-]![^\\."), max_size=5))
def test_agrees_with_the_shells_rules(pattern: str, name: str) -> None:
    if name.startswith(".") and not pattern.startswith("."):
        assert matched(pattern, name) is None
    else:
        assert (matched(pattern, name) is not None) == fnmatch.fnmatchcase(name, pattern)
