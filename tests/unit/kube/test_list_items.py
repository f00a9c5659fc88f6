"""The items of a list, wherever its chunks end and whatever is in its strings; and what is not a list."""

import contextlib
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_kube.decoding import Undecodable
from nodedevice_kube.list_items import HEAD_BYTES, MOST_ENVELOPE_BYTES, Item, ListItems, identity

from tests.examples import examples
from tests.unit.common.test_decoding import hostile

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\[]{},é\n', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["items", "metadata", "a", '"[']), inner, max_size=3)
    ),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text('ab"\\[{', max_size=3), VALUES, max_size=3)


def fed(text: bytes, ends: Sequence[int] = (), most_bytes: int = 10**6) -> tuple[list[Item], bytes]:
    """The items of a text whose chunks end there, and the rest of it."""
    items = ListItems(most_bytes)
    places = [0, *sorted(ends), len(text)]
    found = [item for begin, end in pairwise(places) for item in items.feed(text[begin:end])]
    return found, items.envelope()


@given(
    st.lists(OBJECTS, max_size=4),
    st.dictionaries(st.sampled_from(["kind", "metadata", "x"]), VALUES),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@settings(max_examples=examples(300))
def test_each_item_and_the_rest(
    objects: list[Any], rest: dict[str, Any], is_first: bool, is_indented: bool, data: st.DataObject
) -> None:
    body = {"items": objects, **rest} if is_first else {**rest, "items": objects}
    text = json.dumps(body, indent=2 if is_indented else None, ensure_ascii=False).encode()
    ends = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    found, envelope = fed(text, ends)
    assert [json.loads(item.text) for item in found] == objects
    assert all(item.is_whole for item in found)
    assert json.loads(envelope) == {**body, "items": []}


@pytest.mark.parametrize("chunk", [1, 100, 10**6])
def test_of_one_that_is_too_long_the_start_is_kept(chunk: int) -> None:
    """Its neighbours come whole."""
    long = b'{"metadata":{"name":"x"},"filler":"%b"}' % (b"]" * 3 * HEAD_BYTES)
    text = b'{"items":[{"a":1},%b,{"b":2}]}' % long
    found, _ = fed(text, range(0, len(text), chunk), 2 * HEAD_BYTES)
    assert [item.is_whole for item in found] == [True, False, True]
    assert found[1] == Item(long[:HEAD_BYTES], len(long))


def test_what_is_long_beside_the_items_is_refused() -> None:
    with pytest.raises(Undecodable, match="besides its items"):
        fed(b'{"metadata":"%b","items":[]}' % (b"x" * MOST_ENVELOPE_BYTES))


@pytest.mark.parametrize("text", [b'{"items":[{"a":1}', b'{"items":[{"a":"', b'{"items":[]', b'{"items":[{}],"x":"a'])
def test_one_that_is_cut_off(text: bytes) -> None:
    with pytest.raises(Undecodable, match="cut off"):
        fed(text)


@pytest.mark.parametrize("separator", [b"1,", b'"a"', b"null,"])
def test_what_is_no_object_stays_for_the_decoder(separator: bytes) -> None:
    _, envelope = fed(b'{"items":[{"a":1},%b{"b":2}]}' % separator)
    assert envelope != b'{"items":[]}'


@pytest.mark.parametrize(("name", "text"), list(hostile()))
def test_whatever_text(name: str, text: bytes) -> None:
    """None keeps it busy, and none fails in another way."""
    with contextlib.suppress(Undecodable):
        fed(text, range(0, len(text), 1000))


def test_the_items_of_another_array() -> None:
    rows = ListItems(1000, "rows")
    found = rows.feed(b'{"columnDefinitions":[{"name":"A"}],"rows":[{"cells":[1]},{"cells":["items"]}]}')
    assert [json.loads(item.text) for item in found] == [{"cells": [1]}, {"cells": ["items"]}]
    assert json.loads(rows.envelope()) == {"columnDefinitions": [{"name": "A"}], "rows": []}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"metadata":{"name":"n","uid":"u"', ("n", None, "u", None)),
        (
            b'{"metadata":{"name":"n","generateName":"n-","namespace":"ns","uid":"u","resourceVersion":"7"',
            ("n", "ns", "u", "7"),
        ),
        (b'{"kind":"Pod","metadata":{"name":"n","namespace":"ns","uid":"u","resource', ("n", "ns", "u", None)),
        (b'{"spec":{"a":["metadata"]}', None),
        (b'{"metadata":{"labels":{', None),
    ],
)
def test_who_an_object_is_by_its_start(head: bytes, expected: tuple[str | None, ...] | None) -> None:
    assert identity(head) == expected
