"""What rules find in a value, sentence by sentence."""

from datetime import date
from typing import Any, Final

import pytest
from nodedevice_kube.config_rules import closest, problems, sentences

_INT, _TEXT, _OBJECT = {"type": "integer"}, {"type": "string"}, {"type": "object"}
_LIST: Final = {"type": "array", "items": _INT}
_MAP: Final = {"type": "object", "properties": {"paths": _LIST, "count": _INT, "name": _TEXT}, "required": ["name"]}


@pytest.mark.parametrize(
    ("value", "of", "expected"),
    [
        ("x", _TEXT, []),
        (1, _TEXT, ["here: 1 is not text: put it in quotes"]),
        ("1", _INT, ['here: "1" is not a whole number: write a number without quotes']),
        (1.5, _INT, ["here: 1.5 is not a whole number"]),
        (True, _INT, ["here: true is not a whole number"]),
        (1, {"type": "boolean"}, ["here: 1 is not a boolean"]),
        ([], _OBJECT, ["here: [] is not an object with keys"]),
        ({}, _LIST, ["here: {} is not a list: begin each entry with -"]),
        ("x" * 50, _INT, [f'here: "{"x" * 39}… is not a whole number: write a number without quotes']),
        # half a character, which YAML has an escape for
        ("\ud800", _INT, ['here: "\\ud800" is not a whole number: write a number without quotes']),
        (
            {"\ud800": 1, "name": "n"},
            {**_MAP, "additionalProperties": False},
            ["here.\\ud800: unknown key; known: count, name, paths"],
        ),
        (None, {"type": "string", "nullable": True}, []),
        (None, _TEXT, ["here: null is not text: remove the key, or set it"]),
        ("anything", {}, []),
        (date(2026, 11, 28), _INT, ['here: "2026-11-28" is not a whole number']),
        ("a", {"enum": ["a", "b"]}, []),
        ("c", {"enum": ["a", "b"]}, ['here: "c" is not one of a, b']),
        ("a", {**_TEXT, "minLength": 2}, ["here: has 1 characters; 2 to 1 are possible"]),
        ("abc", {**_TEXT, "maxLength": 2}, ["here: has 3 characters; 0 to 2 are possible"]),
        ("ba", {**_TEXT, "pattern": "^a"}, ['here: "ba" is not of the form ^a']),
        (0, {**_INT, "minimum": 1, "maximum": 2}, ["here: 0 is not possible; 1 to 2 is"]),
        (0, {**_INT, "minimum": 1}, ["here: 0 is not possible; 1 or more is"]),
        (3, {**_INT, "maximum": 2}, ["here: 3 is not possible; up to 2 is"]),
        (1, {**_INT, "minimum": 1, "exclusiveMinimum": True}, ["here: 1 is not possible; more than 1 is"]),
        (2, {**_INT, "maximum": 2, "exclusiveMaximum": True}, ["here: 2 is not possible; up to 2 is"]),
        (float("nan"), {"type": "number", "minimum": 0}, ["here: NaN is not possible; 0 or more is"]),
        ([1], {**_LIST, "minItems": 2}, ["here: has 1 entries, and needs 2"]),
        ([1, 2, 3], {**_LIST, "maxItems": 2}, ["here: has 3 entries, and at most 2 are possible"]),
        ([1, "x"], _LIST, ['here[1]: "x" is not a whole number: write a number without quotes']),
        ({"name": "x", "count": 1, "paths": [1]}, _MAP, []),
        ({}, _MAP, ["here.name: is missing"]),
        ({"name": "x", "path": 1}, _MAP, ["here.path: unknown key; did you mean paths?"]),
        ({"name": "x", "zzz": 1}, _MAP, ["here.zzz: unknown key; known: count, name, paths"]),
        ({"name": "x", "paths": [{}]}, _MAP, ["here.paths[0]: {} is not a whole number"]),
        ({1: "x"}, {**_OBJECT, "additionalProperties": _INT}, ["here.1: is a key that is not text: put it in quotes"]),
        ({"x": 1}, {**_OBJECT, "properties": {"a": _INT}, "additionalProperties": _INT}, []),
        ({"a": 1, "b": 2}, {**_OBJECT, "maxProperties": 1}, ["here: has 2 keys, and at most 1 are possible"]),
    ],
)
def test_problems(value: Any, of: dict[str, Any], expected: list[str]) -> None:
    assert sentences(problems(value, of, "here")) == expected


@pytest.mark.parametrize(
    ("word", "meant"), [("path", "paths"), ("cout", "count"), ("", ""), ("x" * 10_000, ""), ("zzz", "")]
)
def test_a_word_that_is_alike_is_suggested(word: str, meant: str) -> None:
    assert closest(word, ["paths", "count", "name"]) == meant


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("1GB", '"1GB" must be a quantity; did you mean "1Gi"?'),
        ("A/b", '"A/b" must be a quantity'),
        ("1Gi\n", '"1Gi\\n" must be a quantity'),
        ("0Gi", '"0Gi" is nothing'),
        ("1Gi", ""),
    ],
)
def test_a_text_has_rules_with_a_remedy(value: str, sentence: str) -> None:
    quantity = {"is": "^[0-9]+[MG]i$", "message": "must be a quantity", "fixes": [["([MG])B?$", r"\1i"]]}
    rule = {**_TEXT, "x-rules": [quantity, {"not": "^0", "message": "is nothing"}]}
    assert "".join(text for _, text in problems(value, rule)) == sentence


def test_of_many_mistakes_the_first_are_found() -> None:
    found = sentences(problems(["x"] * 60, _LIST))
    assert (len(found), found[-1]) == (51, "and more")
