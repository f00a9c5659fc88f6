"""What others have written becomes values or one error, however deep it is nested, on whatever Python and in whatever thread."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_common.decoding import DEEPEST, DuplicateKey, Undecodable, convert, decode, decode_unique, shallow

from tests.examples import examples

# the API server takes up to 10,000
DEPTHS: Final = (1, DEEPEST - 1, DEEPEST, DEEPEST + 1, 300, 960, 1_100, 5_000, 10_000, 100_000)


class Metadata(msgspec.Struct):
    name: str = ""


class Skipping(msgspec.Struct):
    """Names nothing that is deep."""

    metadata: Metadata


class Keeping(Skipping):
    spec: Any = None


def nested(depth: int, inner: str = "1") -> str:
    return '{"a":' * depth + inner + "}" * depth


def an_object(depth: int) -> bytes:
    """With brackets in its strings, which nest nothing."""
    metadata = f'{{"name":"x","managedFields":[{{"f":{nested(depth)}}}]}}'
    return f'{{"metadata":{metadata},"spec":{nested(depth, json.dumps("]}[{" * 70))}}}'.encode()


def depth_of(value: Any) -> int:
    depth = 0
    while isinstance(value, dict):
        depth, value = depth + 1, value["a"]
    return depth


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_skipped_may_be_as_deep_as_it_likes(depth: int) -> None:
    assert decode(an_object(depth), Skipping).metadata.name == "x"


@pytest.mark.parametrize("depth", DEPTHS)
def test_what_is_kept_of_any_shape_is_cut(depth: int) -> None:
    """The object itself is one level."""
    assert depth_of(decode(an_object(depth), Keeping).spec) == min(depth, DEEPEST - 1)
    assert depth_of(decode(nested(depth), Any)) == min(depth, DEEPEST)
    assert depth_of(json.loads(shallow(nested(depth).encode()))) == min(depth, DEEPEST)


@pytest.mark.parametrize(
    "kept", [Any, list[Any], dict[str, Any], tuple[int, Any], Any | None, list[dict[str, list[Any]]]]
)
def test_what_is_of_any_shape_is_cut_wherever_a_form_has_it(kept: Any) -> None:
    form = msgspec.defstruct("Form", [("outer", msgspec.defstruct("Inner", [("kept", kept, None)]))])
    deep = f'{{"a": {nested(DEEPEST + 20)}}}'
    values = {
        list[Any]: f"[{deep}]",
        tuple[int, Any]: f"[1, {deep}]",
        list[dict[str, list[Any]]]: f'[{{"b": [{deep}]}}]',
    }
    found: Any = decode(f'{{"outer": {{"kept": {values.get(kept, deep)}}}}}', form)
    assert json.dumps(msgspec.to_builtins(found)).count('{"a"') < DEEPEST


def test_what_is_shallow_is_the_same_text() -> None:
    text = b'{"a": [' + b'{"b": "]]]", "c": [1, null]},' * 1000 + b"1]}"
    assert shallow(text) is text


def test_lists_nest_as_objects_do_and_brackets_in_texts_do_not() -> None:
    deep = DEEPEST + 6
    assert shallow(b"[" * deep + b"]" * deep) == b"[" * DEEPEST + b"null" + b"]" * DEEPEST
    # what is cut off in its deep part stays cut off
    assert shallow(b'{"a":' * deep) == b'{"a":' * DEEPEST + b"null"
    text = b'"' + b"[" * deep + b'"'
    assert shallow(text) is text
    for text_before in ("a", '"', "\\", '\\"', '["'):
        before = json.dumps(text_before)
        found: Any = decode(f"[{before}, {'[' * deep}{']' * deep}]", list[Any])
        assert found[0] == text_before
        assert shallow(f"[{before}, {nested(deep)}]".encode()).endswith(b":null" + b"}" * (DEEPEST - 1) + b"]")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='ab"\\[]{}é\n', max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('ab"\\[{', max_size=2), inner, max_size=3),
        max_leaves=20,
    ),
    st.integers(0, DEEPEST + 20),
)
@settings(max_examples=examples(300))
def test_everything_up_to_the_limit_is_kept(value: Any, depth: int) -> None:
    for _ in range(depth):
        value = [value, "]"]
    text = json.dumps(value)
    cut: Any = decode(text, Any)
    for level in range(DEEPEST):
        if not isinstance(value, list) or len(value) != 2 or level == DEEPEST - 1:
            break
        assert cut[1] == value[1]
        value, cut = value[0], cut[0]
    if depth + 20 < DEEPEST:
        assert cut == value


def hostile() -> Iterator[tuple[str, bytes]]:
    """Texts that no decoder takes, or that one fails at in a way of its own."""
    yield "empty", b""
    yield "spaces", b"  \n"
    yield "no text", b"\x00\x01"
    yield "no UTF-8", b'{"metadata": {"name": "\xff\xfe"}}'
    yield "half a character", b'{"metadata": {"name": "\\ud800"}}'
    yield "cut off", b'{"metadata": {"name": "x"'
    yield "cut off and deep", b'{"a":' * 10_000
    yield "closed and never opened", b"]" * 5_000
    yield "no end of a string", b'{"a":' * 2_000 + b'"\\"' * 20_000
    yield "quotes", b"[" * 2_000 + b'"' * 40_001
    yield "a page", b"<html>"
    yield "another form", b'"text"'
    yield "null", b"null"
    yield "a list", b"[[], 1, {}]"
    yield "of nulls", b'{"metadata": null, "items": null, "spec": null, "status": null, "type": null, "object": null}'
    yield "of texts", b'{"metadata": "", "items": "", "spec": "", "status": "", "type": "ADDED", "object": ""}'
    yield "a huge number", b"1" * 5_000
    yield (
        "huge numbers",
        b'{"metadata": {"generation": ' + b"1" * 5_000 + b'}, "spec": 1e400, "status": {"total": -1e999}}',
    )


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in hostile()])
def test_whatever_a_decoder_raises_is_one_error_of_bounded_length(text: bytes) -> None:
    for form in (Skipping, int, str, dict[str, int], list[Skipping], tuple[int, str]):
        with pytest.raises(Undecodable) as found:
            raise_if_taken(text, form)
        assert 0 < len(str(found.value)) <= 500


def raise_if_taken(text: bytes, form: Any) -> None:
    """Some forms take some of them."""
    decode(text, form)
    raise Undecodable(ValueError("taken"))


@pytest.mark.parametrize(
    "bad",
    [{"name": 10**5000}, {"name": float("inf")}, {"\ud800": "x"}, None, []],
    ids=["huge", "endless", "half a character", "null", "another form"],
)
def test_what_was_decoded_already(bad: object) -> None:
    with pytest.raises(Undecodable):
        convert({"metadata": bad}, Skipping)


class Endless(msgspec.Struct, array_like=True):
    inner: "Endless | None" = None


def test_a_list_that_holds_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Undecodable, match="nested deeper"):
        convert(endless, Endless)


def test_a_key_that_is_named_twice() -> None:
    with pytest.raises(Undecodable, match="duplicate key `b`") as found:
        decode_unique('{"a": {"b": 1, "b": 2}}')
    assert isinstance(found.value.__cause__, DuplicateKey)
    assert decode_unique('{"a": {"b": 1}, "b": 2}') == {"a": {"b": 1}, "b": 2}
    assert depth_of(decode_unique(nested(20_000))) == DEEPEST


@pytest.mark.parametrize("limit", [250, 1_000, 20_000])
def test_whatever_the_recursion_limit_is(limit: int) -> None:
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(limit)
        found = [depth_of(decode(an_object(depth), Keeping).spec) for depth in DEPTHS]
    finally:
        sys.setrecursionlimit(before)
    assert found == [min(depth, DEEPEST - 1) for depth in DEPTHS]


def test_in_a_thread_with_a_small_stack() -> None:
    """A thread that overflows its stack ends the process."""
    found: list[int] = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(
            target=lambda: found.extend(len(decode(an_object(n), Skipping).metadata.name) for n in DEPTHS)
        )
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert found == [1] * len(DEPTHS)


@pytest.mark.parametrize(
    ("cause", "sentence"),
    [
        (ValueError("two\nlines"), "two lines"),
        (ValueError(), "ValueError"),
        (RecursionError("x"), f"it is nested deeper than {DEEPEST} levels"),
        (UnicodeDecodeError("utf-8", b"ab\xff", 2, 3, "invalid start byte"), "it is not UTF-8 text (byte 2)"),
    ],
)
def test_each_cause_is_one_sentence(cause: Exception, sentence: str) -> None:
    assert str(Undecodable(cause)) == sentence


_THREADS = """
import sys, threading
from msgspec import defstruct
from nodedevice_common import decoding

def form(depth, number):
    if not depth:
        return defstruct(f"Leaf{number}", [(f"f{each}", int, 0) for each in range(20)])
    below = [form(depth - 1, 3 * number + each) for each in range(3)]
    return defstruct(f"Node{depth}_{number}", [(f"k{each}", one | None, None) for each, one in enumerate(below)])

sys.setswitchinterval(1e-6)
for number in range(60):
    new, together = form(3, number), threading.Barrier(4)

    def work():
        together.wait()
        if number % 2:
            decoding.decode(b'{"k0": {"k1": {"k2": {"f1": 2}}}}', new)
        decoding.convert({"k0": {"k1": {}}}, new)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
"""


def test_threads_that_meet_a_form_at_once_do_not_crash_the_interpreter() -> None:
    """msgspec finds out about a form when it first meets it, without a lock; the kubelet's checkpoint is read in threads."""
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
