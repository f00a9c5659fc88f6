"""Patterns match as a shell's do, each `*` takes as much as it can, and none takes long, whatever it is matched against."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.plugins import patterns
from nodedevice_agent.plugins.patterns import WILDCARD, is_match, matched

PARTS = st.sampled_from(["*", "?", "[ab]", "[!a]", "[b-a]", "a", "b", "ab", ".", "-"])


def by_backtracking(pattern: str, text: str) -> tuple[str, ...] | None:
    """One regular expression, as it was before."""
    pieces, end = [], 0
    for wildcard in WILDCARD.finditer(pattern):
        one = ".*" if wildcard.group() == "*" else patterns._as_regex(wildcard.group())
        pieces += [re.escape(pattern[end : wildcard.start()]), f"({one})"]
        end = wildcard.end()
    match = re.fullmatch("".join([*pieces, re.escape(pattern[end:])]), text, re.DOTALL)
    return match.groups() if match else None


@given(st.lists(PARTS, max_size=7).map("".join), st.text("ab.-\n", max_size=9))
def test_what_matches_and_what_each_wildcard_takes_is_as_before(pattern: str, text: str) -> None:
    expected = by_backtracking(pattern, text)
    assert is_match(pattern, text) == (expected is not None)
    if not text.startswith(".") or pattern.startswith("."):
        assert matched(pattern, text) == expected


@pytest.mark.parametrize("fixed", ["a", "ab", "?a", "[a-z]"])
def test_the_most_wildcards_against_the_longest_name_try_nothing_twice(fixed: str) -> None:
    """Eight of them and a name of 119 characters kept the loop for 46 s; a name of 255 would never end."""
    pattern, name = f"*{fixed}" * 8 + "x", "a" * 255
    assert not is_match(pattern, name)
    assert is_match(pattern, f"{name[:-1]}x") == (fixed != "ab")


@pytest.mark.parametrize(
    ("pattern", "text", "taken"),
    [
        ("a*a", "a", None),
        ("a*a", "aa", ("",)),
        ("ab*b", "ab", None),
        ("*a*a", "a", None),
        ("a*b*c", "abbc", ("b", "")),
        ("*ab*", "ababx", ("ab", "x")),
        ("?*?", "x", None),
        ("?*?", "xy", ("x", "", "y")),
        ("*?*", "x", ("", "x", "")),
        ("a", "ab", None),
        ("*a", "ab", None),
        ("[ab]", "X", None),
        ("[!ab]", "X", ("X",)),
        # a name may have a line in it
        ("a?*", "a\nb", ("\n", "b")),
        ("*?", "\n", ("", "\n")),
        ("?", "\n", ("\n",)),
        ("[!b-a]*", "\n", ("\n", "")),
    ],
)
def test_what_each_wildcard_takes(pattern: str, text: str, taken: tuple[str, ...] | None) -> None:
    assert matched(pattern, text) == taken
    assert is_match(pattern, text) == (taken is not None)
