"""Limits how often a watch decodes an object that changes without end. Pure: times are monotonic seconds.

Decoding a large object takes tens of milliseconds. A few versions of each object are decoded at once; after that a periodic
request reads the latest version.
"""

from typing import Final

from nodedevice_common.pacing import TokenBucket

# The budget of one object. A pod that starts and ends in order changes some ten times.
AT_ONCE: Final = 20
PER_SECOND: Final = 1.0
# a longer object costs a token more for each of so many bytes, up to MOST_TOKENS
_BYTES_OF_TOKEN: Final = 64 * 1024
MOST_TOKENS: Final = 10


def take(buckets: dict[str, TokenBucket], uid: str, octets: int, now: float) -> bool:
    """Whether a version of that object, of so many bytes, is decoded now. buckets: of all objects of one watch, by UID."""
    bucket = buckets.setdefault(uid, TokenBucket(PER_SECOND, AT_ONCE, now))
    tokens = min(1 + octets // _BYTES_OF_TOKEN, MOST_TOKENS)
    if not bucket.take(now, keep=tokens - 1):
        return False
    for _ in range(tokens - 1):
        bucket.take(now)
    return True
