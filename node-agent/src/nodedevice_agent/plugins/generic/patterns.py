"""Path patterns as shells know them: `*`, `?` and `[...]`, each within one directory level, and what they stood for.

A name that begins with a dot is matched only by a pattern that does, as in a shell.
"""

import re
from functools import lru_cache

# The first character of a class is one of it even when it is ]; a [ that is never closed stands for itself.
_WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)


def wildcard_count(pattern: str) -> int:
    """How many wildcards a path pattern holds; 0 for a plain path."""
    return len(_WILDCARD.findall(pattern))


def matched(part: str, name: str) -> tuple[str, ...] | None:
    """What each wildcard of one path component stands for in `name`; None when it does not match."""
    if name.startswith(".") and not part.startswith("."):
        return None
    match = _compiled(part).fullmatch(name)
    return match.groups() if match else None


@lru_cache(maxsize=1024)
def _compiled(part: str) -> re.Pattern[str]:
    pieces, end = [], 0
    for wildcard in _WILDCARD.finditer(part):
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
        return "(?!)"  # an empty range such as [z-a] matches nothing, as in a shell
    return f"[{'^' if inverted else ''}{members}]"


def _members(text: str) -> str:
    """The inside of a regular expression's class: single characters and ranges, all escaped."""
    members, position = [], 0
    while position < len(text):
        first = text[position]
        if text[position + 1 : position + 2] == "-" and position + 2 < len(text):
            last = text[position + 2]
            if first <= last:
                members.append(f"{re.escape(first)}-{re.escape(last)}")
            position += 3
        else:
            members.append(re.escape(first))
            position += 1
    return "".join(members)
