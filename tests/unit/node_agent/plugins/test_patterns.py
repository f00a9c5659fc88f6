"""Patterns match as a shell's do, each `*` takes as much as it can, and none takes long, whatever it is matched against."""

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.plugins.patterns import is_match, matched


@pytest.mark.parametrize("fixed", ["a", "ab", "?a", "[a-z]"])
def test_the_most_wildcards_against_the_longest_name_try_nothing_twice(fixed: str) -> None:
    """Eight of them and a name of 119 characters kept the loop for 46 s; a name of 255 would never end."""
    pattern, name = f"*{fixed}" * 8 + "x", "a" * 255
    assert not is_match(pattern, name)
    assert is_match(pattern, f"{name[:-1]}x") == (fixed != "ab")


@pytest.mark.parametrize(
    ("pattern", "text", "taken"),
    [
        ("plain.name", "plainxname", None),
        ("a", "ab", None),
        ("*a", "ab", None),
        ("ttyUSB*", "ttyUSB12", ("12",)),
        ("ttyUSB*", "ttyUSB", ("",)),
        ("tty?", "tty", None),
        ("tty[!0-3]", "tty4", ("4",)),
        ("a[]]b", "a]b", ("]",)),
        ("a[x", "a[x", ()),
        ("a[z-a]", "ab", None),
        ("a[!z-a]", "ab", ("b",)),
        ("a[z-a!]", "a!", ("!",)),
        ("a*a", "a", None),
        ("*a*a", "a", None),
        ("a*b*c", "abbc", ("b", "")),
        ("*ab*", "ababx", ("ab", "x")),
        ("?*?", "xy", ("x", "", "y")),
        ("*?*", "x", ("", "x", "")),
        # a name may have a line in it
        ("a?*", "a\nb", ("\n", "b")),
        ("[!b-a]*", "\n", ("\n", "")),
    ],
)
def test_what_each_wildcard_takes(pattern: str, text: str, taken: tuple[str, ...] | None) -> None:
    assert matched(pattern, text) == taken
    assert is_match(pattern, text) == (taken is not None)


@pytest.mark.parametrize(("pattern", "taken"), [("*", None), (".*", ("hidden",))])
def test_a_hidden_file_is_named_by_its_dot(pattern: str, taken: tuple[str, ...] | None) -> None:
    assert matched(pattern, ".hidden") == taken


def is_misread_by_fnmatch(pattern: str) -> bool:
    """Python drops the empty range of [b-a!], and takes the ! for a negation then; bash and glibc do not."""
    return any(first > last for first, last in re.findall(r"\[(.)-(.)!", pattern))


@given(
    st.text(st.sampled_from("ab-]![*?^\\."), max_size=6).filter(lambda pattern: not is_misread_by_fnmatch(pattern)),
    st.text(st.sampled_from("ab-]![^\\."), max_size=5),
)
def test_agrees_with_the_shells_rules(pattern: str, name: str) -> None:
    assert is_match(pattern, name) == fnmatch.fnmatchcase(name, pattern)
