"""YAML that others have written becomes values, nodes or one error, whichever library reads it."""

from contextlib import suppress
from typing import Any, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_common import yaml_decoding
from nodedevice_common.decoding import DEEPEST, Undecodable
from nodedevice_common.yaml_decoding import QUICK_LOADER, decode_yaml, first_document
from nodedevice_common.yaml_nodes import Mapping, Scalar

LOADERS: Final[list[type[Any]]] = [yaml.SafeLoader, QUICK_LOADER]


_DEEP: Final = {
    "flow": "[" * 50_000,
    "block": "- " * 50_000,
    "mapping": "{a: " * 50_000,
    "closed": "[" * 900 + "]" * 900,
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", _DEEP.values(), ids=_DEEP.keys())
def test_deep_yaml_is_an_error(text: str, loader: type[Any]) -> None:
    """The library in C overflows its stack, which ends the process: in one of its own where it would."""
    with pytest.raises(Undecodable, match=f"nested deeper than {DEEPEST} levels"):
        decode_yaml(text, loader)
    with pytest.raises(Undecodable, match=f"nested deeper than {DEEPEST} levels"):
        first_document(text.encode(), loader)


@pytest.mark.parametrize("loader", LOADERS)
def test_the_nodes_of_a_document(loader: type[Any]) -> None:
    """Whose texts stay texts; what follows the first document is not read."""
    text = b"a: [1, '1', !!str 1]\n1: &x {b: ~}\na: *x\n---\n[\n"
    inner = Mapping([(Scalar("b"), Scalar("~"))])
    items = [Scalar("1"), Scalar("1", is_plain=False), Scalar("1", "tag:yaml.org,2002:str")]
    found = first_document(text, loader)
    assert found == [(Scalar("a"), items), (Scalar("1"), inner), (Scalar("a"), inner)]
    assert isinstance(found, Mapping)
    assert first_document(b"", loader) is None


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", [b"*a", b"&a [*a]", b"[", b"\xff", b"\0", b"%YAML 1.2\n---\na", rb'"\/"', b"[a?b]"])
def test_a_document_without_nodes(text: bytes, loader: type[Any]) -> None:
    with pytest.raises(Undecodable):
        first_document(text, loader)


def test_a_document_has_a_bounded_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_decoding, "_MOST", 3)
    assert first_document(b"[a, b]")
    with pytest.raises(Undecodable, match="more than 3 values"):
        first_document(b"[a, b, c]")


@given(st.binary(max_size=60))
def test_any_octets_are_nodes_or_an_error(octets: bytes) -> None:
    with suppress(Undecodable):
        first_document(octets)


@pytest.mark.parametrize("loader", LOADERS)
def test_aliases_count_as_what_they_stand_for(loader: type[Any]) -> None:
    deep = [f"a{i}: &a{i} {'[' * 30}{f'*a{i - 1}' if i else 1}{']' * 30}" for i in range(4)]
    assert decode_yaml("\n".join(deep[:2]), loader)
    with pytest.raises(Undecodable, match="nested deeper than 64 levels, with its aliases"):
        decode_yaml("\n".join(deep), loader)
    laughs = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'ha'] * 10)}]" for i in range(10)]
    assert decode_yaml("\n".join(laughs[:4]), loader)
    with pytest.raises(Undecodable, match="more than 100000 values"):
        decode_yaml("\n".join(laughs), loader)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("inner", ["", "a", "{}", "*x", "{a: *x}"])
def test_yaml_is_taken_down_to_the_deepest_level(inner: str, loader: type[Any]) -> None:
    levels = {"": 0, "a": 0, "{}": 1, "*x": 5, "{a: *x}": 6}[inner]
    for more in (0, 1):
        # the outermost list beside the anchor is a level too
        around = DEEPEST - 1 - levels + more
        text = f"[&x {'[' * 5}{']' * 5}, {'[' * around}{inner}{']' * around}]"
        if more:
            end = ", with its aliases$" if "*" in inner else "$"
            with pytest.raises(Undecodable, match=f"nested deeper than {DEEPEST} levels{end}"):
                decode_yaml(text, loader)
        else:
            decode_yaml(text, loader)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("text", ["a: [", "2001-99-99", "a: \x01", b"\xff\xfe\x00", "!!int ''", "--- a\n--- b", "*a"])
def test_bad_yaml_is_the_same_error(text: str | bytes, loader: type[Any]) -> None:
    with pytest.raises(Undecodable):
        decode_yaml(text, loader)


def test_good_yaml() -> None:
    assert decode_yaml("") is None
    assert decode_yaml("a: [1, {b: c}]") == {"a": [1, {"b": "c"}]}


@pytest.mark.parametrize("loader", LOADERS)
def test_an_alias_that_holds_itself(loader: type[Any]) -> None:
    with pytest.raises(Undecodable, match="holds itself"):
        decode_yaml("a: &a [1, [*a]]", loader)
