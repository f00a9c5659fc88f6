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


async def test_of_a_line_that_is_too_long_the_rest_is_dropped() -> None:
    chunks = [b"abc", b"def", b"gh\nij\nklmno", b"p\nq\n"]
    assert [line async for line in lines(chunked(chunks), 4)] == [b"abcd", b"ij", b"klmn", b"q"]
