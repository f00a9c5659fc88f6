"""Loads the settings of a program: flag or environment variable, else YAML or JSON file, else default.

The file's keys are the flags' names in camelCase. A mistake is an error that names its place and, where it can, the remedy: a
typo must not become a default.
"""

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec import inspect

S = TypeVar("S", bound=msgspec.Struct)

# of a library's error, which may quote a whole file
_MAX_SHOWN = 500

_PLACE = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]*)`")
_SOME_VALUE = "[...]"


class SettingProblem(Exception):
    """A setting that cannot be used. source: the file, or the flag and its environment variable."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


def load(kind: type[S], file: Path | None, given: Mapping[str, Any]) -> S:
    """Settings from the file, with `given` (flags and environment by field name; None: not given) on top.

    Raises SettingProblem.
    """
    settings = _from_file(kind, file) if file is not None else kind()
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    changes = {name: _from_flag(kind, name, keys[name], value) for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes)


def _from_file(kind: type[S], file: Path) -> S:
    source = f"config file {file}"
    try:
        raw = _parsed(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SettingProblem(source, f"cannot be read ({exc.strerror})") from exc
    except Exception as exc:
        # odd dates, empty numbers and deep nesting leave the YAML library as half a dozen other exceptions
        raise SettingProblem(source, f"is not YAML ({' '.join(str(exc).split())[:_MAX_SHOWN]})") from exc
    if raw is not None and not isinstance(raw, dict):
        raise SettingProblem(source, "must be a mapping of settings, such as `logLevel: debug`")
    try:
        return converted(kind, raw or {})
    except ValueError as exc:
        raise SettingProblem(source, str(exc)) from exc


def converted(kind: type[S], raw: Any) -> S:
    """Settings from what a file or an object of the API has. Raises ValueError, which says where the mistake is."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as exc:
        raise ValueError(_explained(str(exc), raw, kind)) from exc
    except (RecursionError, UnicodeError) as exc:
        raise ValueError(str(exc)[:_MAX_SHOWN]) from exc


def _from_flag(kind: type[S], name: str, key: str, value: Any) -> Any:
    try:
        return getattr(msgspec.convert({key: value}, kind), name)
    except msgspec.ValidationError as exc:
        source = f"--{name.replace('_', '-')} (NODEDEVICE_{name.upper()})"
        raise SettingProblem(source, _explained(str(exc), {key: value}, kind, shows_place=False)) from exc


def _parsed(text: str) -> Any:
    """JSON is read as JSON: a program may have written it, and not all of it means the same in YAML, such as 1e-5."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return yaml.load(text, Loader=_UniqueKeys)
    # which keeps the last of duplicate keys
    json.loads(text, object_pairs_hook=_unique)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key `{key}`")
        found[key] = value
    return found


class _UniqueKeys(yaml.SafeLoader):
    """Rejects duplicate keys. The library keeps the last one, and devices listed under the first would be missing silently."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        seen: set[str] = set()
        for key in keys:
            if key.value in seen:
                raise yaml.MarkedYAMLError(None, None, f"duplicate key `{key.value}`", key.start_mark)
            seen.add(key.value)
        return node


def _explained(problem: str, raw: Any, kind: type[msgspec.Struct], *, shows_place: bool = True) -> str:
    """msgspec's sentence about raw, which does not convert to that kind, with the remedy where there is one."""
    if len(problem) > _MAX_SHOWN:
        return problem[:_MAX_SHOWN]  # it quotes a value as long as that, and the place, at its end, is cut off
    place = _PLACE.search(problem)
    path = place["path"] if place else ""
    expected, found = _at(path, inspect.type_info(kind), raw)
    remedy = _remedy(problem, expected, found, is_key=bool(place and place["key"]), is_value=path.endswith(_SOME_VALUE))
    return (problem if shows_place else _PLACE.sub("", problem)) + remedy


def _remedy(problem: str, expected: inspect.Type, found: Any, *, is_key: bool, is_value: bool) -> str:
    unknown = _UNKNOWN_KEY.search(problem)
    if unknown and isinstance(expected, inspect.StructType):
        return _known(unknown["key"], [field.encode_name for field in expected.fields])
    if isinstance(found, dict) and isinstance(expected, inspect.DictType):
        if is_key:
            wrong = next((key for key in found if not isinstance(key, str)), None)
            return "" if wrong is None else f", the key {wrong!s:.80}; write it in quotes"
        if is_value:
            return _wrong_value(found, _without_null(expected.value_type))
    return _choices(expected) if problem.startswith("Invalid enum value") else ""


def _wrong_value(found: dict[Any, Any], expected: inspect.Type) -> str:
    """Which value of the mapping does not convert."""
    if isinstance(expected, inspect.LiteralType):
        wrong = next((key for key, value in found.items() if value not in expected.values), None)
        return f", of {wrong!s:.80}{_choices(expected)}"
    wrong = next((key for key, value in found.items() if not isinstance(value, str)), None)
    return "" if wrong is None else f", of {wrong!s:.80}; write the value in quotes"


def _choices(expected: inspect.Type) -> str:
    if not isinstance(expected, inspect.LiteralType):
        return ""
    return f"; choose one of {', '.join(map(str, expected.values))}"


def _known(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"


def _at(path: str, expected: inspect.Type, raw: Any) -> tuple[inspect.Type, Any]:
    """What is expected and found at a place such as `.plugins.generic[0]`; for a value of a mapping, the mapping."""
    for name, index in _STEP.findall(path):
        expected = _without_null(expected)
        if name and isinstance(expected, inspect.StructType):
            expected = next(field.type for field in expected.fields if field.encode_name == name)
            raw = raw[name]
        elif index and isinstance(expected, inspect.ListType):
            expected, raw = expected.item_type, raw[int(index)]
    return _without_null(expected), raw


def _without_null(expected: inspect.Type) -> inspect.Type:
    if isinstance(expected, inspect.UnionType):
        return next(one for one in expected.types if not isinstance(one, inspect.NoneType))
    return expected
