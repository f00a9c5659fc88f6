"""Which of two releases is newer, and whether one may replace the objects of the other.

Ordered as in semantic versioning, as far as our own releases need: by numbers, a pre-release before its release.
"""

import re
from dataclasses import dataclass
from typing import Final

_FORM: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?")


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release by its numbers. pre_release: sort key of the parts of rc.1 and the like; that of a release sorts last."""

    major: int
    minor: int
    patch: int
    pre_release: tuple[tuple[int, int, str], ...]


_NO_PRE_RELEASE: Final = ((2, 0, ""),)


def release(text: str) -> Release | None:
    """The release in this text; None where it is not one."""
    match = _FORM.fullmatch(text)
    if match is None:
        return None
    parts = match[4].split(".") if match[4] else []
    # a number sorts before a word
    order = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return Release(int(match[1]), int(match[2]), int(match[3]), order or _NO_PRE_RELEASE)


def is_older(ours: str, there: str) -> bool:
    """Whether release `ours` is older than the existing `there`. A text that is no release counts as the oldest."""
    stored, own = release(there), release(ours)
    return stored is not None and own is not None and own < stored
