"""Makes charts/nodedevice/values.schema.json: the chart's own values by hand, the settings of both programs from their code.

So a setting that a program does not know, or would refuse, is refused by `helm install` already, by its name. What no schema can
say (two resources of one name) is left to the program, which says it at its start. Part of `make generate`.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml
from nodedevice_agent.settings import Settings as AgentSettings
from nodedevice_operator.settings import Settings as OperatorSettings

_HERE = Path(__file__).parent
SOURCE = _HERE / "values.schema.yaml"
SCHEMA = _HERE / "nodedevice" / "values.schema.json"

PROGRAMS: dict[str, type[msgspec.Struct]] = {"agent": AgentSettings, "operator": OperatorSettings}
# The chart says these itself: where the pod runs, where its ports are, and what must agree with the rights it hands out.
DECIDED = {
    "agent": frozenset({"nodeName", "kubeconfig", "httpAddress", "leasesNamespace"}),
    "operator": frozenset(
        {
            "kubeconfig",
            "httpAddress",
            "leasesNamespace",
            "namespace",
            "leaderElect",
            "requiredPlugins",
            "nodeTaint",
            "nodeLabels",
        }
    ),
}

_ABSOLUTE = {"pattern": "^/"}
_RESOURCE_NAME = {"pattern": r"^[A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$"}
# What the programs check in code of their own, beside the types; by definition and key.
_CHECKED_IN_CODE: dict[str, dict[str, dict[str, Any]]] = {
    "AgentSettings": {
        "stateDir": _ABSOLUTE,
        "pluginDir": _ABSOLUTE,
        "kubeletDir": _ABSOLUTE,
        "nriSocket": _ABSOLUTE,
        "pluginsRegistryDir": {"pattern": "^(/.*)?$"},
    },
    "AgentPluginSettings": {"hostRoot": _ABSOLUTE},
    "AgentGenericSettings": {"resourceName": _RESOURCE_NAME},
    "AgentSimulatedSettings": {"resourceName": _RESOURCE_NAME},
    "AgentPathSettings": {"path": {"pattern": "^/.*[^/]$"}, "permissions": {"pattern": "^[rwm]{1,3}$"}},
    "AgentMountSettings": {"hostPath": _ABSOLUTE},
}


def schema() -> dict[str, Any]:
    """The whole schema as plain values."""
    made: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    for program, settings in PROGRAMS.items():
        made["$defs"] |= _definitions(program, settings)
    made["properties"] = _with_settings(made["properties"])
    return made


def _definitions(program: str, settings: type[msgspec.Struct]) -> dict[str, Any]:
    """Every structure of a program's settings, under names that begin with the program's."""
    prefix = program.capitalize()
    _, found = msgspec.json.schema_components([settings], ref_template=f"#/$defs/{prefix}{{name}}")
    made = {
        f"{prefix}{name}": {key: value for key, value in each.items() if key != "title"} for name, each in found.items()
    }
    top = made[f"{prefix}{settings.__name__}"]
    top["description"] = f"Settings of the {program}."
    top["properties"] = {key: value for key, value in top["properties"].items() if key not in DECIDED[program]}
    for definition, keys in _CHECKED_IN_CODE.items():
        for key, more in keys.items() if definition in made else ():
            made[definition]["properties"][key] |= more
    return made


def _with_settings(part: Any) -> Any:
    """The same, with references to the programs' settings where the source asks for them."""
    if isinstance(part, dict):
        if part.keys() == {"settings"}:
            return {"$ref": f"#/$defs/{part['settings'].capitalize()}Settings"}
        return {key: _with_settings(value) for key, value in part.items()}
    return part


def text() -> str:
    """The file as it is checked in."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text(), encoding="utf-8")
