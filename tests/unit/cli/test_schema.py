"""What a schema says of a value, sentence by sentence, and what is explained of a field."""

from datetime import date
from typing import Any, Final

import pytest
from kubectl_nodedevice import schema

_INT, _TEXT = {"type": "integer"}, {"type": "string"}
_LIST: Final = {"type": "array", "items": _INT}
_MAP: Final = {"type": "object", "properties": {"paths": _LIST, "count": _INT, "name": _TEXT}, "required": ["name"]}


@pytest.mark.parametrize(
    ("value", "of", "expected"),
    [
        ("x", _TEXT, []),
        (1, _TEXT, ["here: 1 is no text (quote it)"]),
        ("1", _INT, ['here: "1" is no whole number']),
        (1.5, _INT, ["here: 1.5 is no whole number"]),
        (True, _INT, ["here: true is no whole number"]),
        (1.5, {"type": "number"}, []),
        (1, {"type": "number"}, []),
        (True, {"type": "boolean"}, []),
        (1, {"type": "boolean"}, ["here: 1 is no boolean"]),
        ([], {"type": "object"}, ["here: [] is no object with keys"]),
        ({}, _LIST, ["here: {} is no list"]),
        ("x" * 50, _INT, [f'here: "{"x" * 39}… is no whole number']),
        ("x" * 38, _INT, [f'here: "{"x" * 38}" is no whole number']),
        ("é", _INT, ['here: "é" is no whole number']),
        (None, {"type": "string", "nullable": True}, []),
        (None, _TEXT, ["here: null is no text (quote it)"]),
        ("anything", {}, []),
        ("anything", {"type": "of another kind"}, []),
        ("", _TEXT, []),
        ([], _LIST, []),
        (date(2026, 11, 28), _INT, ['here: "2026-11-28" is no whole number']),
        ("a", {"enum": ["a", "b"]}, []),
        ("c", {"enum": ["a", "b"]}, ['here: "c" is none of a, b']),
        ("ab", {**_TEXT, "minLength": 2, "maxLength": 2}, []),
        ("a", {**_TEXT, "minLength": 2}, ["here: has 1 characters; 2 to any are possible"]),
        ("abc", {**_TEXT, "maxLength": 2}, ["here: has 3 characters; 0 to 2 are possible"]),
        ("ab", {**_TEXT, "pattern": "^a"}, []),
        ("ba", {**_TEXT, "pattern": "^a"}, ['here: "ba" is not of the form ^a']),
        (1, {**_INT, "minimum": 1, "maximum": 1}, []),
        (0, {**_INT, "minimum": 1, "maximum": 2}, ["here: 0 is not possible; 1, to 2 is"]),
        (3, {**_INT, "minimum": 1, "maximum": 2}, ["here: 3 is not possible; 1, to 2 is"]),
        (0, {**_INT, "minimum": 1}, ["here: 0 is not possible; 1 is"]),
        (3, {**_INT, "maximum": 2}, ["here: 3 is not possible; at most 2 is"]),
        (1, {**_INT, "minimum": 1, "exclusiveMinimum": True}, ["here: 1 is not possible; more than 1 is"]),
        (2, {**_INT, "minimum": 1, "exclusiveMinimum": True}, []),
        (2, {**_INT, "maximum": 2, "exclusiveMaximum": True}, ["here: 2 is not possible; at most 2 is"]),
        (1, {**_INT, "maximum": 2, "exclusiveMaximum": True}, []),
        (float("nan"), {"type": "number", "minimum": 0}, ["here: NaN is not possible; 0 is"]),
        ([1, 2], {**_LIST, "minItems": 2, "maxItems": 2}, []),
        ([1], {**_LIST, "minItems": 2}, ["here: has 1 entries, and needs 2"]),
        ([1, 2, 3], {**_LIST, "maxItems": 2}, ["here: has 3 entries, and at most 2 are possible"]),
        ([1, "x"], _LIST, ['here[1]: "x" is no whole number']),
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], {"type": "array", "x-kubernetes-list-map-keys": ["a", "b"]}, []),
        (
            [{"a": 1, "b": 2}, 7, {"a": 1, "b": 2}],
            {"type": "array", "x-kubernetes-list-map-keys": ["a", "b"]},
            ["here[2]: there are several of 1, 2"],
        ),
        ({"name": "x", "count": 1, "paths": [1]}, _MAP, []),
        ({}, _MAP, ["here.name: is missing"]),
        ({"name": "x", "path": 1}, _MAP, ["here.path: there is no such key; did you mean paths?"]),
        ({"name": "x", "zzz": 1}, _MAP, ["here.zzz: there is no such key; there is count, name, paths"]),
        ({"name": "x", "paths": ["y"]}, _MAP, ['here.paths[0]: "y" is no whole number']),
        ({1: "x"}, {"type": "object", "additionalProperties": _INT}, ['here.1: "x" is no whole number']),
        ({"x": 1}, {"type": "object", "properties": {"a": _INT}, "additionalProperties": _INT}, []),
        ({"x": 1}, {"type": "object"}, []),
        ({"a": 1}, {"type": "object", "maxProperties": 1}, []),
        (
            {"a": 1, "b": 2},
            {"type": "object", "maxProperties": 1},
            ["here: has 2 keys, and at most 1 are possible"],
        ),
    ],
)
def test_problems(value: Any, of: dict[str, Any], expected: list[str]) -> None:
    assert [*schema.problems(value, of, "here")] == expected


def test_a_problem_of_the_whole_has_its_name() -> None:
    assert [*schema.problems(1, _TEXT)] == ["the document: 1 is no text (quote it)"]
    assert [*schema.problems({}, _MAP)] == ["name: is missing"]


def test_many_keys_are_not_all_named() -> None:
    properties = {f"k{number:02}": _INT for number in range(20)}
    [problem] = schema.problems({"zzz": 1}, {"type": "object", "properties": properties})
    assert problem.endswith("there is " + ", ".join([*properties][:12]))


_NESTED: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"groups": {"type": "array", "items": {"type": "array", "items": _MAP}}},
}


def test_a_field_is_found_through_lists() -> None:
    assert schema.at(_NESTED, []) is _NESTED
    assert schema.at(_NESTED, ["groups", "count"]) == schema.at(_NESTED, ["groups[]", "count"]) == _INT
    assert schema.at(_NESTED, ["groups", "none"]) is None
    assert schema.at(_NESTED, ["groups", "count", "more"]) is None
    assert schema.inner(_NESTED["properties"]["groups"]) == _MAP
    assert schema.inner(_INT) is _INT
    assert schema.inner({"type": "array"}) == {}


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (_TEXT, "text"),
        (_INT, "whole number"),
        ({"type": "boolean"}, "true or false"),
        ({"type": "object"}, "object"),
        ({}, "anything"),
        (_LIST, "list of whole number"),
        ({"type": "array"}, "list of anything"),
        ({**_TEXT, "enum": ["a", "b"]}, "text, one of a, b"),
        ({**_INT, "minimum": 0, "maximum": 100}, "whole number, 0, to 100"),
        ({**_INT, "maximum": 100}, "whole number, at most 100"),
        ({**_INT, "minimum": 1, "exclusiveMinimum": True}, "whole number, more than 1"),
    ],
)
def test_the_type_of_a_field(of: dict[str, Any], words: str) -> None:
    assert schema.type_of(of) == words
