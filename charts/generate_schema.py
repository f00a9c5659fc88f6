"""Makes charts/nodedevice/values.schema.json: the chart's own values by hand, the settings of the programs from their code.

So `helm install` already refuses settings that a program does not know or would refuse, and names them. templates/_checks.tpl has
the checks that need a better message than a schema gives. The program rejects the rest (two groups of the same path) at its start.
Part of `make generate`.
"""

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml
from nodedevice_agent.settings import AgentSettings
from nodedevice_api import extended_resources
from nodedevice_operator.extender.settings import ExtenderSettings
from nodedevice_operator.remediation.eviction_policy import ANY_RESOURCE, Policy
from nodedevice_operator.settings import OperatorSettings

_HERE = Path(__file__).parent
SOURCE = _HERE / "values.schema.yaml"
SCHEMA = _HERE / "nodedevice" / "values.schema.json"

PROGRAMS: dict[str, type[msgspec.Struct]] = {
    "agent": AgentSettings,
    "operator": OperatorSettings,
    "extender": ExtenderSettings,
}
_HTTP = ("metricsAuthentication", "tlsCertificate", "tlsKey")
# The chart sets these itself: the pod's place, its ports, and settings that must match the chart's RBAC rules.
DECIDED = {
    "agent": frozenset(
        {
            "nodeName",
            "kubeconfig",
            "httpAddress",
            "leasesNamespace",
            "namespace",
            "observe",
            "observeDra",
            "allowedHostPaths",
            *_HTTP,
        }
    ),
    "operator": frozenset(
        {
            "kubeconfig",
            "httpAddress",
            *_HTTP,
            "leasesNamespace",
            "namespace",
            "leaderElect",
            "instance",
            "observeDra",
            "requiredPlugins",
            "requiredPluginNames",
            "markWaitingPods",
            "nodeTaint",
            "nodeLabels",
        }
    ),
    "extender": frozenset(
        {
            "kubeconfig",
            "address",
            "httpAddress",
            "policy",
            "tlsCertificate",
            "tlsKey",
            "clientCa",
            "clientNames",
            "metricsAuthentication",
            "metricsTlsCertificate",
            "metricsTlsKey",
            "leaderElect",
            "instance",
            "namespace",
            "followLease",
        }
    ),
}


def _whole(*patterns: "re.Pattern[str]", between: str = "") -> str:
    """Return a pattern that matches whole texts, like the programs do; JSON schema matches any part of a text."""
    return f"^{between.join(f'({pattern.pattern})' for pattern in patterns)}$"


_RESOURCE_NAME: dict[str, Any] = {
    "pattern": _whole(extended_resources.DOMAIN, extended_resources.NAME, between="/"),
    "allOf": [{"pattern": f"^[^/]{{1,{extended_resources.MAX_DOMAIN}}}/"}],
}


def _by_resource(words: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of a map from resource names, or * for all others, to one of these words."""
    names = (f"^{re.escape(ANY_RESOURCE)}$", _RESOURCE_NAME["pattern"])
    return {"patternProperties": {name: {"enum": sorted(words)} for name in names}, "additionalProperties": False}


# Checks of the operator's code that types cannot express, by definition and key.
_CHECKED_IN_CODE: dict[str, dict[str, dict[str, Any]]] = {
    "OperatorSettings": {
        "heldDevicePolicy": _by_resource(get_args(Policy)),
    },
}


def schema() -> dict[str, Any]:
    """Return the file's schema. Parts that the templates check only have their shape, for editors."""
    made = strict()
    for name, each in made["$defs"].items():
        if name.startswith("Agent"):
            made["$defs"][name] = _shape(each)
    for part in (made, made["properties"]["agents"]):
        del part["additionalProperties"]
    return made


def _shape(part: Any) -> Any:
    """Return keys and descriptions only, without checks of values."""
    found = {key: part[key] for key in ("title", "description", "default", "$ref") if key in part}
    if "properties" in part:
        found["properties"] = {key: _shape(each) for key, each in part["properties"].items()}
    if isinstance(part.get("items"), dict):
        found["items"] = _shape(part["items"])
    if "anyOf" in part and any("$ref" in each for each in part["anyOf"]):
        found |= next(_shape(each) for each in part["anyOf"] if "$ref" in each)
    return found


def strict() -> dict[str, Any]:
    """Return all checks of the values that a schema can express."""
    made: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    for program, settings in PROGRAMS.items():
        made["$defs"] |= _definitions(program, settings)
    made["$defs"]["resourceName"] = {"type": "string"} | _RESOURCE_NAME
    made["properties"] = _with_settings(made["properties"])
    return made


def _definitions(program: str, settings: type[msgspec.Struct]) -> dict[str, Any]:
    """Return every structure of a program's settings; its name starts with the program's name."""
    prefix = program.capitalize()
    _, found = msgspec.json.schema_components([settings], ref_template=f"#/$defs/{prefix}{{name}}")
    made = {
        f"{prefix}{name.removeprefix(prefix)}": {key: value for key, value in each.items() if key != "title"}
        for name, each in found.items()
    }
    top = made[settings.__name__]
    top["description"] = f"Settings of the {program}."
    top["properties"] = {key: value for key, value in top["properties"].items() if key not in DECIDED[program]}
    for definition, keys in _CHECKED_IN_CODE.items():
        for key, more in keys.items() if definition in made else ():
            made[definition]["properties"][key] |= more
    return made


def _with_settings(part: Any) -> Any:
    """Replace the source's placeholders with references to the programs' settings."""
    if isinstance(part, dict):
        if part.keys() == {"settings"}:
            return {"$ref": f"#/$defs/{part['settings'].capitalize()}Settings"}
        return {key: _with_settings(value) for key, value in part.items()}
    return part


def text() -> str:
    """Return the content of the generated file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text(), encoding="utf-8")
