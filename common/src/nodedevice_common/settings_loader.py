"""Loads the settings of a program: flag or environment variable, else YAML or JSON file, else default.

The file's keys are the flags' names in camelCase. A mistake is an error with its place and the remedy: a typo must not become a
default.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from nodedevice_common.conversion import converted, explained
from nodedevice_common.decoding import DuplicateKey, Undecodable, convert, decode_unique

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")


class SettingProblem(Exception):
    """source: the file, or the flag and its environment variable."""

    def __init__(self, source: str, problem: str) -> None:
        super().__init__(f"{source}: {problem}")
        self.source = source
        self.problem = problem


def load(
    kind: type[S],
    file: Path | None,
    given: Mapping[str, Any],
    problems: Callable[[Any], Sequence[str]] = lambda raw: (),
) -> S:
    """Load settings from the file, with `given` on top: flags and environment by field name, None if absent.

    problems: finds mistakes in the file other than types. Raises SettingProblem.
    """
    settings = _from_file(kind, file, problems) if file is not None else kind()
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    changes = {name: _from_flag(kind, name, keys[name], value) for name, value in given.items() if value is not None}
    return msgspec.structs.replace(settings, **changes)


def _from_file(kind: type[S], file: Path, problems: Callable[[Any], Sequence[str]]) -> S:
    source = f"config file {file}"
    try:
        raw = _parsed(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SettingProblem(source, f"cannot be read ({exc.strerror})") from exc
    except (UnicodeDecodeError, Undecodable) as exc:
        raise SettingProblem(source, f"is not YAML ({exc})") from exc
    if raw is not None and not isinstance(raw, dict):
        raise SettingProblem(source, "must be a mapping of settings, such as `logLevel: debug`")
    if found := problems(raw or {}):
        raise SettingProblem(source, found[0] if len(found) == 1 else "\n  ".join([f"{len(found)} mistakes:", *found]))
    try:
        return _checked(source, converted(kind, raw or {}))
    except ValueError as exc:
        raise SettingProblem(source, str(exc)) from exc


def _from_flag(kind: type[S], name: str, key: str, value: Any) -> Any:
    source = f"--{name.replace('_', '-')} (NODEDEVICE_{name.upper()})"
    try:
        return _checked(source, getattr(convert({key: value}, kind), name))
    except Undecodable as exc:
        raise SettingProblem(source, explained(exc, {key: value}, kind, shows_place=False)) from exc


def _checked(source: str, found: T) -> T:
    """Raises SettingProblem for invalid UTF-8: a shell passes any octets, YAML can escape any, and the API server rejects them."""
    try:
        msgspec.json.encode(found)
    except UnicodeEncodeError as exc:
        raise SettingProblem(source, "has text that is not UTF-8") from exc
    return found


def _parsed(text: str) -> Any:
    """Read JSON as JSON: not all of it means the same in YAML, such as 1e-5. Raises Undecodable."""
    try:
        return decode_unique(text)
    except Undecodable as exc:
        if isinstance(exc.__cause__, DuplicateKey):
            raise
        # The chart writes JSON. The import takes 10 ms and 2 MiB.
        import yaml
        from nodedevice_kube.decoding import with_unique_keys

        from nodedevice_common.yaml_decoding import decode_yaml

        return decode_yaml(text, with_unique_keys(yaml.SafeLoader))
