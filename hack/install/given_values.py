"""Checks a file of values without Helm and without a cluster: it is YAML, and the chart has such keys.

Templates refuse more. They are Helm's part, at an install.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from kubectl_nodedevice import config_rules

from hack import yaml_text
from hack.cluster.chart import CHART
from hack.install.errors import InstallError

_SCHEMA: Final = CHART / "values.schema.json"
_RULES: Final = CHART / "rules.json"
_MOST_SHOWN: Final = 5


def check(file: Path) -> None:
    """Raises InstallError with what is wrong in the file."""
    if not file.is_file():
        raise InstallError(f"VALUES={file} is no file", "name a file of values for the chart, in YAML")
    found = problems(_read(file))
    if found:
        more = f"; and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
        raise InstallError(f"VALUES={file}: {'; '.join(found[:_MOST_SHOWN])}{more}", "correct VALUES")


def problems(values: Any) -> list[str]:
    """A sentence for each, beginning with its place. An empty file has none."""
    if values is not None and not isinstance(values, dict):
        return ["it has no keys: a file of values is a mapping, such as `agents: {}`"]
    whole = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    given = _without_nulls(values or {})
    of_schema = config_rules.problems(given, _resolved(whole, whole["$defs"]))
    of_rules = config_rules.problems(given, json.loads(_RULES.read_text(encoding="utf-8")))
    # What both refuse is named once, in the words of the rules.
    return config_rules.sentences(iter(dict((*of_schema, *of_rules)).items()))


def _read(file: Path) -> Any:
    try:
        text = file.read_text(encoding="utf-8")
        return yaml_text.load(text)
    except UnicodeDecodeError as exc:
        raise InstallError(f"VALUES={file} is no text in UTF-8", "save it as UTF-8") from exc
    except yaml.YAMLError as exc:
        mark, why = getattr(exc, "problem_mark", None), getattr(exc, "problem", None) or str(exc)
        line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            why = "a tab, where YAML wants spaces"
        place = f" in line {mark.line + 1}" if mark else ""
        raise InstallError(f"VALUES={file} is no YAML: {why}{place}", "correct VALUES") from exc


def _without_nulls(value: Any) -> Any:
    """As Helm reads it: a key that is null stands for the default."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _resolved(part: Any, definitions: Mapping[str, Any]) -> Any:
    """The same, with definitions in place of what refers to them."""
    if isinstance(part, list):
        return [_resolved(each, definitions) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _resolved(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {key: _resolved(each, definitions) for key, each in part.items() if key != "$defs"}
