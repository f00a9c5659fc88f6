"""What is fed in: any bytes, bytes that are nearly right, any JSON, and JSON of nearly the right shape."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

# JSON can spell lone surrogates, and UTF-8 cannot.
_HALF_A_PAIR = "\ud800"
# Strings that mean something somewhere: to paths, numbers, YAML, Go, terminals.
_ODD = ["", " ", "\0", "*", "..", "a/b", "-1", "01", "1e999999999", "é", "\u2028", "\x1b[2J", "~", "null", "x" * 300]

# What a strict parser of JSON lets through.
whole_texts = st.one_of(st.sampled_from(_ODD), st.text(max_size=20))
texts = st.one_of(whole_texts, whole_texts, st.text(max_size=3).map(lambda text: text + _HALF_A_PAIR))
numbers = st.one_of(
    st.integers(-3, 10), st.integers(), st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400]), st.floats()
)
_flat = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


def _nested(levels: int) -> Any:
    """As deep as this program's own encoder writes it, at most; what is deeper has tests of its own."""
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


values = st.one_of(_flat, _flat, _flat, st.integers(50, 400).map(_nested))


def nearly(seeds: Sequence[bytes]) -> SearchStrategy[bytes]:
    """Bytes of which a few were changed, taken out or put in; and now and then any bytes."""
    return st.one_of(_edited(seeds), st.binary(max_size=2000))


@st.composite
def _edited(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(list(seeds))))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 12)))
        data[start:end] = draw(st.one_of(st.binary(max_size=8), st.just(bytes(data[start:end]) * 2)))
    return bytes(data)


def mostly(usual: SearchStrategy[Any], odd: SearchStrategy[Any] = values) -> SearchStrategy[Any]:
    """One in twenty is odd: with many fields in one input, most inputs still get past the first check."""
    return st.integers(0, 19).flatmap(lambda fate: odd if fate == 19 else usual)


def shaped(fields: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """An object with these keys; seldom without some of them, with a value of any kind, or no object at all."""
    full = st.fixed_dictionaries({key: mostly(found) for key, found in fields.items()})
    part = st.fixed_dictionaries({}, optional={key: mostly(found) for key, found in fields.items()})
    return mostly(mostly(full, part))


def some(inner: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """A list of these, or seldom anything."""
    return mostly(st.lists(inner, max_size=4))


def as_json(value: Any) -> bytes:
    """As a server or a file has it; NaN and lone surrogates are kept, as careless writers do."""
    return json.dumps(value).encode()
