"""Patterns with `*`, `?` and `[...]`, as in a shell. A path's pattern is matched one directory level at a time. Pure."""

import re
from functools import lru_cache

# The first character of a class belongs to it even if it is ]; a [ that is never closed is a literal.
WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)
# More wildcards than this make matching slow; nothing real needs them.
_MAX_WILDCARDS = 8

Captures = tuple[str, ...]


def wildcard_count(pattern: str) -> int:
    """Number of wildcards in a pattern, or in a part of it; 0 for plain text."""
    return len(WILDCARD.findall(pattern))


def check_wildcards(key: str, pattern: str) -> None:
    """key: for the message. Raises ValueError."""
    if wildcard_count(pattern) > _MAX_WILDCARDS:
        raise ValueError(f"{key}: {pattern[:400]!r} has more than {_MAX_WILDCARDS} wildcards; use fewer")


def is_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches all of the text."""
    return _compiled(pattern).fullmatch(text) is not None


def matched(part: str, name: str) -> Captures | None:
    """What each wildcard of one path component matches in `name`; None when the component does not match."""
    if name.startswith(".") and not part.startswith("."):
        return None
    match = _compiled(part).fullmatch(name)
    return match.groups() if match else None


@lru_cache(maxsize=1024)
def _compiled(part: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for wildcard in WILDCARD.finditer(part):
        pieces += [re.escape(part[end : wildcard.start()]), f"({_as_regex(wildcard.group())})"]
        end = wildcard.end()
    return re.compile("".join([*pieces, re.escape(part[end:])]), re.DOTALL)


def _as_regex(wildcard: str) -> str:
    if wildcard == "*":
        return ".*"
    if wildcard == "?":
        return "."
    inverted = wildcard.startswith("[!")
    members = _members(wildcard[2 if inverted else 1 : -1])
    if not members:
        # an empty range such as [z-a] matches nothing, and [!z-a] any character, as in a shell
        return "." if inverted else "(?!)"
    return f"[{'^' if inverted else ''}{members}]"


def _members(text: str) -> str:
    """The inside of a regular expression's class: single characters and ranges, all escaped."""
    members = []
    for first, last, single in re.findall(r"(.)-(.)|(.)", text, re.DOTALL):
        if single:
            members.append(re.escape(single))
        elif first <= last:
            members.append(f"{re.escape(first)}-{re.escape(last)}")
    return "".join(members)
