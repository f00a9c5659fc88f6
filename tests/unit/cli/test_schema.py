"""What is explained of a field."""

from typing import Any, Final

import pytest
from kubectl_nodedevice import schema

_INT, _TEXT = {"type": "integer"}, {"type": "string"}
_LIST: Final = {"type": "array", "items": _INT}
_MAP: Final = {"type": "object", "properties": {"paths": _LIST, "count": _INT, "name": _TEXT}, "required": ["name"]}


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
        ({**_INT, "minimum": 0, "maximum": 100}, "whole number, 0 to 100"),
        ({**_INT, "maximum": 100}, "whole number, up to 100"),
        ({**_INT, "minimum": 1, "exclusiveMinimum": True}, "whole number, more than 1"),
    ],
)
def test_the_type_of_a_field(of: dict[str, Any], words: str) -> None:
    assert schema.type_of(of) == words
