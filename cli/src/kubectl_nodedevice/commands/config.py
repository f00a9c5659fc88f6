"""`kubectl nodedevice config`: explains the fields of NodeDeviceConfigs and settings files, and validates files."""

import json
import sys
from collections.abc import Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
from nodedevice_kube.config_checks import outside
from nodedevice_kube.config_rules import closest, problems, sentences
from nodedevice_kube.decoding import Undecodable, decode_documents, read_text
from nodedevice_kube.fields import list_of, map_of, text_of

from kubectl_nodedevice import schema
from kubectl_nodedevice.errors import FINE, NEEDS_YOU, UsageProblem
from kubectl_nodedevice.output import Table
from kubectl_nodedevice.session import Command, current, shared_options
from kubectl_nodedevice.styles import BAD, BOLD, FAINT, GOOD

_KIND: Final = "NodeDeviceConfig"
_SETTINGS: Final = "agent"
_VALUES: Final = "values"
_NAMES: Final = {_SETTINGS: "settings of the agent", _VALUES: "values of the chart", _KIND: _KIND}
_API_VERSION: Final = "nodedevice.io/v1alpha1"
_LEFT: Final = "only an agent can check the rest: files of its host, and conflicts between configurations"
_MOST_FILES: Final = 1000


@click.group()
def config() -> None:
    """Explain fields of NodeDeviceConfigs and of the agent's settings, and validate files, without a cluster."""


config.params += shared_options()


@config.command(cls=Command)
@click.argument("field", default="", required=False)
@click.option("--agent", "is_settings", is_flag=True, help="Explain the agent's settings file instead.")
@click.pass_context
def explain(context: click.Context, field: str, is_settings: bool) -> int:
    """Explain FIELD, such as spec.plugins.generic.groups, and what is below it."""
    screen = current(context).screen
    root = _schemas()[_SETTINGS if is_settings else _KIND]
    words = [word for word in field.split(".") if word]
    found = schema.at(root, words)
    if found is None:
        known = schema.at(root, words[:-1]) or root
        names = ", ".join(sorted(schema.inner(known).get("properties", {}))) or "none"
        raise UsageProblem(f"field {field} does not exist", f"existing fields: {names}", code="NoSuchField")
    below = schema.inner(found).get("properties", {})
    if screen.is_for_machines:
        screen.data("Explanation", {"field": field, "schema": found})
        return FINE
    screen.line(f"{field or (_SETTINGS if is_settings else _KIND)}: {schema.type_of(found)}", BOLD)
    if text_of(found, "description"):
        screen.line(text_of(found, "description"))
    table = Table(("FIELD", "TYPE", "MEANING"))
    required = list_of(schema.inner(found), "required")
    for name, each in below.items():
        needed = " (required)" if name in required else ""
        table.add(name, f"{schema.type_of(each)}{needed}", text_of(each, "description"))
    screen.table(table)
    return FINE


@config.command(cls=Command)
@click.argument("names", metavar="FILE...", nargs=-1, required=True)
@click.pass_context
def validate(context: click.Context, names: tuple[str, ...]) -> int:
    """Check files: NodeDeviceConfigs, values of the chart, or settings of the agent; - is standard input.

    Paths in NodeDeviceConfigs are compared with agents.allowedHostPaths of values among the files, or with its default.
    Only an agent can check the rest.
    """
    screen = current(context).screen
    documents = [(name, each) for name in names[:_MOST_FILES] for each in _documents(name)]
    roots = _host_paths([each for _, each in documents])
    found = [(name, *_of_document(each, roots)) for name, each in documents]
    bad = [each for each in found if each[2]]
    if screen.is_for_machines:
        items = [{"file": name, "document": what, "problems": mistakes} for name, what, mistakes in found]
        screen.data("ValidationReport", {"items": items})
        return NEEDS_YOU if bad else FINE
    for name, what, mistakes in found:
        for each in mistakes:
            screen.line(f"{name}: {what}: {each}", BAD)
        if not mistakes:
            screen.line(f"{name}: {what} is valid", GOOD)
    if not bad:
        screen.line(f"The schema is met; {_LEFT}.", FAINT)
    return NEEDS_YOU if bad else FINE


def _schemas() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("kubectl_nodedevice").joinpath("schemas.json").read_bytes())
    return found


def _documents(name: str) -> list[Any]:
    """Read the documents of a file. Raises UsageProblem."""
    try:
        text = sys.stdin.read() if name == "-" else read_text(Path(name))
        documents = [each for one in decode_documents(text, is_strict=True) for each in _items(one)]
    except (Undecodable, UnicodeDecodeError) as exc:
        raise UsageProblem(f"{name}: {exc}", "correct the file", code="BadFile") from exc
    if not documents:
        raise UsageProblem(
            f"{name}: it is empty", "it has a NodeDeviceConfig, values or settings of the agent", code="BadFile"
        )
    return documents


def _items(document: Any) -> list[Any]:
    """Return the items of a list, as `kubectl get -o yaml` prints it; any other document itself."""
    is_listed = text_of(document, "kind") in ("List", f"{_KIND}List")
    return list_of(document, "items") if is_listed else [document]


def _host_paths(documents: Sequence[Any]) -> list[str]:
    """Return the directories in which NodeDeviceConfigs may name paths: by values among the documents, or the chart's default."""
    given = [map_of(each, "agents").get("allowedHostPaths") for each in documents]
    lists = [each for each in given if isinstance(each, list)]
    return [path for each in lists for path in each if isinstance(path, str)] if lists else ["/dev"]


def _of_document(document: Any, roots: Sequence[str]) -> tuple[str, list[str]]:
    kind = text_of(document, "kind")
    schemas = _schemas()
    if kind:
        what = f"{kind} {text_of(document, 'metadata', 'name') or '(no name)'}"
        if kind != _KIND or text_of(document, "apiVersion") != _API_VERSION:
            near = closest(kind, [_KIND]) or _KIND
            return what, [f"apiVersion, kind: only {_API_VERSION}, {near} can be checked here"]
        document = schema.stored(document, schemas[_KIND])
        plugins = map_of(document, "spec", "plugins")
        return what, sentences(chain(problems(document, schemas[_KIND]), outside(plugins, "spec.plugins", roots)))
    # max() returns the first of two equal ones
    candidates = (
        (_VALUES, _SETTINGS, _KIND) if _known_keys(document, schemas[_VALUES])[0] else (_SETTINGS, _VALUES, _KIND)
    )
    name = max(candidates, key=lambda each: _known_keys(document, schemas[each]))
    if name == _KIND:
        return _NAMES[_KIND], [
            f"apiVersion, kind: are missing; a {_KIND} begins with apiVersion: {_API_VERSION}, kind: {_KIND}"
        ]
    return _NAMES[name], sentences(problems(document, schemas[name]))


def _known_keys(document: Any, rule: schema.Schema) -> tuple[int, int]:
    """Count the keys that a file of that kind has, and the keys that resemble one."""
    keys, known = [str(key) for key in map_of(document)], [*rule["properties"]]
    return sum(key in known for key in keys), sum(bool(closest(key, known)) for key in keys)
