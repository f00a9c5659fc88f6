"""Shares one object for equal texts: names, UIDs, reasons.

`sys.intern` forgets an unused text. Python 3.12 keeps every text, 106 bytes for the UID of each pod that ever ran
(3.13 forgets again, https://github.com/python/cpython/issues/113993): there, a bounded number of the last ones is shared.
"""

import sys
from functools import lru_cache
from typing import Final

_MOST: Final = 65536


@lru_cache(_MOST)
def _one_of_the_last(text: str) -> str:
    return text


IS_KEPT_FOR_EVER: Final = sys.version_info[:2] == (3, 12)
intern: Final = _one_of_the_last if IS_KEPT_FOR_EVER else sys.intern
