"""Shell patterns for paths (`*`, `?` and `[...]`, each within one directory level), and what their wildcards match.

As in a shell, a name with a leading dot is matched only by a pattern with a leading dot.
"""

import re
from functools import lru_cache

# The first character of a class belongs to it even if it is ]; a [ that is never closed is a literal.
_WILDCARD = re.compile(r"\*|\?|\[(?:!.|[^!])[^\]]*\]", re.DOTALL)


def wildcard_count(pattern: str) -> int:
    """Number of wildcards in a path pattern; 0 for a plain path."""
    return len(_WILDCARD.findall(pattern))


def matched(part: str, name: str) -> tuple[str, ...] | None:
    """What each wildcard of one path component matches in `name`; None when the component does not match."""
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
