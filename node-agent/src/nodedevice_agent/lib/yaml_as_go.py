"""Values of YAML documents as go.yaml.in/yaml/v3 decodes them into Go's structs, with unknown fields forbidden. Pure.

A program in Go that reads the same file decides by these rules: a number is a text as well, 010 is octal, null is as good as
nothing, and one value of another form spoils the document.
Source: go.yaml.in/yaml/v3 @ v3.0.5, decode.go and resolve.go.
"""

import binascii
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from nodedevice_common.decoding import TooMuch
from nodedevice_common.text import shown
from nodedevice_common.yaml_nodes import Mapping as YamlMapping
from nodedevice_common.yaml_nodes import Scalar

_INTEGER: Final = re.compile("[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BEGIN_A_NUMBER: Final = frozenset("+-.0123456789")
_DATE: Final = re.compile("[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*")
_LONG: Final = "tag:yaml.org,2002:"
_TEXT_TAG, _BINARY, _MERGE = (f"{_LONG}{name}" for name in ("str", "binary", "merge"))
_WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_YES: Final = ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON")
_NO: Final = ("n", "N", "no", "No", "NO", "off", "Off", "OFF")
_INT64: Final = 1 << 63


class Invalid(ValueError):
    """The document does not have this form; the text says why."""


def _resolved(node: Scalar) -> Any:
    """None, a bool, a number, or the text. Raises Invalid if its tag does not fit."""
    tag = "" if node.tag == "!" else node.tag
    if tag == _TEXT_TAG or (not tag and not node.is_plain):
        return node.text
    value = _by_text(node.text)
    if not tag:
        return value
    if tag == _BINARY or not tag.startswith(_LONG):
        return node.text
    return _by_tag(tag.removeprefix(_LONG), node.text, value)


def _by_text(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _BEGIN_A_NUMBER:
        return text
    plain = text if text[0] == "." else text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        # 0777 is octal
        is_octal = plain.lstrip("+-").startswith("0") and plain.lstrip("+-").isdecimal()
        number = int(plain, 8 if is_octal else 0)
        if -_INT64 <= number < 2 * _INT64:
            return number
    if _FLOAT.fullmatch(plain) and abs(float(plain)) != float("inf"):
        return float(plain)
    return text


def _by_tag(name: str, text: str, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match name:
        case "null" if value is None:
            return None
        case "bool" if isinstance(value, bool):
            return value
        case "int" if is_number and isinstance(value, int):
            return value
        case "float" if is_number:
            return float(value)
        case "timestamp" if _DATE.fullmatch(text):
            return text
        case "null" | "bool" | "int" | "float" | "timestamp":
            raise Invalid(f"{shown(text, 40)!r} is no {name}")
    return text


class Decoder:
    """Decodes one file. Null counts as absent.

    most: the number of values allowed, aliases expanded. left: how many of them are left.
    """

    def __init__(self, most: int) -> None:
        self._most = self.left = most

    def record(self, node: Any, fields: Mapping[str, Callable[..., Any]], where: str) -> dict[str, Any] | None:
        """The fields that are there. Raises Invalid for one that is not known."""
        if self.is_null(node):
            return None
        record: dict[str, Any] = {}
        for key, value in self._pairs(node, where):
            decode = fields.get(key)
            place = f"{where}.{key}" if where else key
            if decode is None:
                raise Invalid(f"field {shown(place, 100)} is unknown")
            if key in record:
                raise Invalid(f"field {place} is there twice")
            record[key] = decode(self, value, place)
        return {key: value for key, value in record.items() if value is not None}

    def _pairs(self, node: Any, where: str) -> Iterator[tuple[str, Any]]:
        """Keys and values, including those of merged mappings (<<) whose key the mapping itself lacks."""
        if not isinstance(node, YamlMapping):
            raise Invalid(f"{where or 'it'} is not an object")
        keys = Counter(key.text if isinstance(key, Scalar) else "" for key, _ in node)
        if (most := keys.most_common(1)) and most[0][1] > 1:
            raise Invalid(f"{where or 'it'} has {shown(most[0][0], 40)} twice")
        merged: Any = None
        seen: set[str] = set()
        for key, value in node:
            if isinstance(key, Scalar) and key.text == "<<" and self._merges(key):
                merged = value
            elif (name := self.text(key, f"a key of {where or 'it'}")) is not None:
                seen.add(name)
                yield name, value
        if merged is None:
            return
        for mapping in merged if type(merged) is list else [merged]:
            if not isinstance(mapping, YamlMapping):
                raise Invalid(f"<< of {where or 'it'} is not an object")
            for name, value in self._pairs(mapping, where):
                if name not in seen:
                    seen.add(name)
                    yield name, value

    @staticmethod
    def _merges(key: Scalar) -> bool:
        return (key.is_plain and key.tag in ("", "!")) or key.tag == _MERGE

    def is_null(self, node: Any) -> bool:
        self.left -= 1
        if self.left < 0:
            raise TooMuch(ValueError(f"it has more than {self._most} values"))
        return isinstance(node, Scalar) and _resolved(node) is None

    def text(self, node: Any, where: str) -> str | None:
        if self.is_null(node):
            return None
        if not isinstance(node, Scalar):
            raise Invalid(f"{where} is not text")
        if node.tag == _BINARY:
            try:
                return b64decode(node.text.replace("\n", ""), validate=True).decode("utf-8", "surrogateescape")
            except binascii.Error as error:
                raise Invalid(f"{where} is not base64") from error
        return node.text

    def flag(self, node: Any, where: str) -> bool | None:
        if self.is_null(node):
            return None
        value = _resolved(node) if isinstance(node, Scalar) else node
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in (*_YES, *_NO):
            return value in _YES
        raise Invalid(f"{where} is neither true nor false")

    def number(self, node: Any, where: str, least: int = -_INT64, most: int = _INT64 - 1) -> int | None:
        if self.is_null(node):
            return None
        value = _resolved(node) if isinstance(node, Scalar) else node
        if isinstance(value, int | float) and not isinstance(value, bool) and least <= int(value) <= most:
            return int(value)
        raise Invalid(f"{where} is not a whole number from {least} to {most}")

    def annotations(self, node: Any, where: str) -> dict[str, str | None] | None:
        if self.is_null(node):
            return None
        return {name: self.text(value, f"{where}.{shown(name, 40)}") for name, value in self._pairs(node, where)}


def list_of(decode: Callable[..., Any], *, skips_null: bool = True) -> Callable[..., list[Any] | None]:
    """The decoder of a list with such items. Null items are ignored, or else a mistake, at which the library fails."""

    def decode_list(decoder: Decoder, node: Any, where: str) -> list[Any] | None:
        if decoder.is_null(node):
            return None
        if not isinstance(node, list) or isinstance(node, YamlMapping):
            raise Invalid(f"{where} is not a list")
        items = [decode(decoder, item, f"{where}[{at}]") for at, item in enumerate(node)]
        if None in items and not skips_null:
            raise Invalid(f"{where}[{items.index(None)}] is empty")
        return [item for item in items if item is not None]

    return decode_list
