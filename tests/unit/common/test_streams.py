"""Lines of a stream, wherever its chunks end."""

from collections.abc import AsyncIterator

import pytest
from nodedevice_common.streams import lines


async def chunked(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], id="whole"),
        pytest.param([b"a", b"", b"b\nc", b"d\n"], [b"ab", b"cd"], id="in pieces"),
        pytest.param([b"a\nb"], [b"a"], id="an incomplete line is dropped"),
        pytest.param(
            ["a\x85b\u2028c\rd\n".encode()], ["a\x85b\u2028c\rd".encode()], id="a line feed alone ends a line"
        ),
        pytest.param([], [], id="nothing"),
    ],
)
async def test_lines(chunks: list[bytes], expected: list[bytes]) -> None:
    assert [line async for line in lines(chunked(chunks))] == expected
