"""Shares one object for equal texts: names, UIDs, reasons.

Python 3.12 keeps every text given to `sys.intern`, such as the UID of each pod (https://github.com/python/cpython/issues/113993).
There, a bounded number of the last texts is shared.
"""

import sys
from functools import lru_cache
from typing import Final

_MOST: Final = 65536


@lru_cache(_MOST)
def _one_of_the_last(text: str) -> str:
    return text


IS_KEPT_FOR_EVER: Final = sys.version_info[:2] == (3, 12)
intern: Final = _one_of_the_last if IS_KEPT_FOR_EVER else sys.intern  # noqa: TID251  # the rule sends all others here
