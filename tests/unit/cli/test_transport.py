"""Where a request goes, with which credentials, and how much of an answer is read: without a connection."""

import gzip
import io
import tracemalloc
from typing import Any

import pytest
from kubectl_nodedevice import transport
from kubectl_nodedevice.transport import TooLong

# -- what is answered ---------------------------------------------------------------------------------------------------------


def content(octets: bytes, encoding: str = "", give_up_at: float | None = None) -> bytes:
    """Of at most a MiB."""
    response: Any = io.BytesIO(octets)
    return b"".join(transport._pieces(response, encoding, give_up_at, 1 << 20))


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_body_has_a_bound(encoding: str) -> None:
    def of(size: int) -> bytes:
        return gzip.compress(b"x" * size) if encoding else b"x" * size

    assert len(content(of(1 << 20), encoding)) == 1 << 20
    with pytest.raises(TooLong, match="an answer of more than 1 MiB"):
        content(of((1 << 20) + (1 << 18)), encoding)


def test_what_is_packed_ever_so_small_takes_no_memory() -> None:
    packed = gzip.compress(bytes(16 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TooLong):
            content(packed, "gzip")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20
