"""Writes the rules that each entry point applies to a configuration, from the settings and charts/config_rules.py.

Agent: rules of its settings file and of a NodeDeviceConfig's plugins. Chart: rules of its values that values.schema.json does not
check. `kubectl nodedevice config`: all rules, with descriptions.
Run by `make generate`, after the schema of the values is made.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from nodedevice_agent.settings import AgentSettings
from nodedevice_kube.config_rules import place_of

from charts import generate_config_schema, generate_schema
from hack import yaml_text

_ROOT: Final = Path(__file__).parents[1]
_COMMAND: Final = _ROOT / "cli/src/kubectl_nodedevice"
_FOR_PEOPLE: Final = frozenset({"description", "default", "format"})
# keywords that mean the same in JSON schema and in rules
_SAME: Final = (
    *("description", "type", "enum", "required", "pattern", "minLength", "maxLength", "minimum", "maximum"),
    *("minItems", "maxItems", "maxProperties"),
)

Rule = dict[str, Any]


def settings() -> Rule:
    """Return the rules of the agent's settings file."""
    return generate_config_schema.object_of(AgentSettings)


def config() -> Rule:
    """Return the rules of a NodeDeviceConfig: its CRD's schema, with other rules for the plugins."""
    crd = yaml_text.load(generate_config_schema.CRD.read_text(encoding="utf-8"))
    kind: Rule = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec = kind["properties"]["spec"]["properties"]
    spec["plugins"] = {"description": spec["plugins"]["description"], **generate_config_schema.plugins()}
    return kind


def values(*, is_whole: bool) -> Rule:
    """Return the rules of the chart's values. is_whole: include the checks of values.schema.json, instead of its keys only."""
    schema = generate_schema.strict()
    made = _of_schema(schema, schema["$defs"])
    agents = made["properties"]["agents"]["properties"]
    if not is_whole:
        made["properties"] = {key: {} for key in made["properties"]} | {
            "agents": {"properties": {key: {} for key in agents}}
        }
        agents = made["properties"]["agents"]["properties"]
    agents["config"] = settings() | {"nullable": True}
    # null removes the chart's default
    agents["config"]["properties"]["delivery"]["nullable"] = True
    for key in generate_schema.DECIDED["agent"]:
        agents["config"]["properties"][key] = {
            "x-refused": "the chart sets it; remove the key, or use its value in agents"
        }
    return made


def _of_schema(schema: Any, definitions: Rule) -> Rule:
    """Convert a JSON schema to rules, without `if`. Each value may be null for its default."""
    if "$ref" in schema:
        rest = {key: each for key, each in schema.items() if key != "$ref"}
        return _of_schema(definitions[schema["$ref"].rpartition("/")[2]] | rest, definitions)
    found: Rule = {key: schema[key] for key in _SAME if key in schema} | {"nullable": True}
    for key in ("exclusiveMinimum", "exclusiveMaximum"):
        if key in schema:
            found |= {key.removeprefix("exclusive").lower(): schema[key], key: True}
    if "properties" in schema:
        found["properties"] = {key: _of_schema(each, definitions) for key, each in schema["properties"].items()}
    if "items" in schema:
        found["items"] = _of_schema(schema["items"], definitions) | {"nullable": False}
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _of_schema(schema["additionalProperties"], definitions)
    if "patternProperties" in schema:
        taken = {key: each for key, each in schema["patternProperties"].items() if each is not False}
        message = "is not possible as a key here"
        found["x-keys"] = [{"is": "|".join(f"({key})" for key in taken), "message": message}]
        found["x-keys"] += [{"not": key, "message": message} for key in schema["patternProperties"] if key not in taken]
        found["additionalProperties"] = _of_schema(next(iter(taken.values())), definitions)
    forms = [each["pattern"] for each in schema.get("allOf", ()) if "pattern" in each]
    if forms:
        forms += [schema["pattern"]] if "pattern" in schema else []
        found["x-rules"] = [{"is": each, "message": f"is not of the form {each}"} for each in forms]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            found["x-any"] = [_of_schema(each, definitions) for each in schema[key]]
    return found


def for_programs(rule: Any) -> Any:
    """Return the rules without descriptions, and without keywords for the API server."""
    if isinstance(rule, list):
        return [for_programs(each) for each in rule]
    if not isinstance(rule, dict):
        return rule
    named = ("properties",)
    return {
        key: {name: for_programs(one) for name, one in each.items()} if key in named else for_programs(each)
        for key, each in rule.items()
        if key not in _FOR_PEOPLE
        and not key.startswith("x-kubernetes-")
        and (key != "pattern" or not rule.get("x-rules"))
    }


def files() -> dict[Path, str]:
    """Return the generated content by file."""
    of_agent = {"settings": settings(), "plugins": generate_config_schema.plugins()}
    of_command = {"NodeDeviceConfig": config(), "agent": settings(), "values": for_programs(values(is_whole=True))}
    of_chart = values(is_whole=False)
    keys = {key for path in _keys(of_chart) for key in path}
    of_chart["x-places"] = {key: place for key in sorted(keys) if (place := place_of(key, of_chart))}
    made = {
        _ROOT / "node-agent/src/nodedevice_agent/lib/config_rules.json": json.dumps(
            for_programs(of_agent), separators=(",", ":")
        ),
        _ROOT / "charts/nodedevice/config_rules.json": _compact(for_programs(of_chart)),
        _COMMAND / "schemas.json": "{"
        + ",\n".join(f'"{kind}":{_compact(rule)}' for kind, rule in of_command.items())
        + "}",
    }
    return {path: f"{text}\n" for path, text in made.items()}


def _compact(rule: Rule) -> str:
    return json.dumps(rule, separators=(",", ":"))


def _keys(rule: Rule) -> Iterator[frozenset[str]]:
    """Yield the keys of every object in a rule."""
    yield frozenset(rule.get("properties", ()))
    for each in [*rule.get("properties", {}).values(), rule.get("items")]:
        if isinstance(each, dict):
            yield from _keys(each)


def main() -> None:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
