"""Makes charts/nodedevice/values.schema.json: the chart's own values by hand, the settings of the programs from their code.

So a setting that a program does not know, or would refuse, is refused by `helm install` already, by its name. What a schema cannot
reject with a helpful message is in templates/_checks.tpl; the rest (two groups of the same path) is left to the program, which
rejects it at its start. Part of `make generate`.
"""

import itertools
import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml
from nodedevice_agent.devicemanager.allocation.allocate_once import AllocateRetry
from nodedevice_agent.lib.cdi_specification import KIND as CDI_KIND
from nodedevice_agent.lib.filesystem import MAX_PATH_BYTES
from nodedevice_agent.plugins.checks import MAX_PATH
from nodedevice_agent.plugins.generic.select_settings import PROPERTY, SUBSYSTEM, USB_ID
from nodedevice_agent.plugins.nvml.settings import LIBRARY_DIR, QUANTITY
from nodedevice_agent.plugins.settings import ENV_NAME, ID_PREFIX
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
# The chart sets these itself: where the pod runs, where its ports are, and what must agree with the rights it hands out.
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

_ABSOLUTE = {"pattern": "^/"}
# A part of a path between two slashes: anything but nothing and `..`.
_PART = "([^/]|[^/][^/.]|[^/.][^/]|[^/]{3,})"
_PLAIN_PATH = {"pattern": f"^/({_PART}(/{_PART})*/?)?$", "maxLength": MAX_PATH}
_PLAIN_PATH_OR_NONE = {"pattern": f"^(/({_PART}(/{_PART})*/?)?)?$", "maxLength": MAX_PATH}
# The kernel has no more than 1024; which of two comes first is checked in templates/_checks.tpl.
_NUMA_NODE = "(0?[0-9]{1,3}|10[01][0-9]|102[0-3])"
_NUMA_NODES = f"{_NUMA_NODE}(-{_NUMA_NODE})?"
_NO_DOUBLE_STAR = {"pattern": r"^([^*]|\*[^*])*\*?$"}
_PERMISSIONS = sorted("".join(letters) for n in (1, 2, 3) for letters in itertools.permutations("rwm", n))


def _whole(*patterns: "re.Pattern[str]", between: str = "") -> str:
    """The pattern of a text that is these and nothing else. Programs match whole texts, JSON schema any part of one."""
    return f"^{between.join(f'({pattern.pattern})' for pattern in patterns)}$"


_RESOURCE_NAME: dict[str, Any] = {
    "pattern": _whole(extended_resources.DOMAIN, extended_resources.NAME, between="/"),
    "allOf": [{"pattern": f"^[^/]{{1,{extended_resources.MAX_DOMAIN}}}/"}],
}

_RESOURCE_NAME_OR_NONE: dict[str, Any] = {"anyOf": [{"const": ""}, _RESOURCE_NAME]}


def _by_resource(words: tuple[str, ...]) -> dict[str, Any]:
    """A mapping from resource names, * for all others, to one of these words."""
    names = (f"^{re.escape(ANY_RESOURCE)}$", _RESOURCE_NAME["pattern"])
    return {"patternProperties": {name: {"enum": sorted(words)} for name in names}, "additionalProperties": False}


# What the programs check in code of their own, beside the types; by definition and key.
_CHECKED_IN_CODE: dict[str, dict[str, dict[str, Any]]] = {
    "AgentSettings": {
        "stateDir": _ABSOLUTE | {"maxLength": MAX_PATH_BYTES - len("/pod-resources/kubelet.sock")},
        "pluginDir": _ABSOLUTE | {"maxLength": MAX_PATH_BYTES - len("/kubelet.sock")},
        "kubeletDir": _ABSOLUTE,
        "nriSocket": _ABSOLUTE | {"maxLength": MAX_PATH_BYTES},
        "podResourcesSocket": {"pattern": "^(/.*)?$", "maxLength": MAX_PATH_BYTES},
        "pluginsRegistryDir": {"pattern": "^(/.*)?$"},
        "runtimeConfig": {"pattern": "^(/.*)?$"},
        "allocateRetry": _by_resource(get_args(AllocateRetry)),
        "numaNodes": {"pattern": f"^ *({_NUMA_NODES}( *, *{_NUMA_NODES})*)? *$"},
    },
    "AgentPluginSettings": {"hostRoot": _PLAIN_PATH},
    "AgentGenericSettings": {"resourceName": _RESOURCE_NAME},
    "AgentGroupSettings": {
        "env": {"patternProperties": {_whole(ENV_NAME): {"type": "string"}}, "additionalProperties": False}
    },
    "AgentSimulatedSettings": {
        "resourceName": _RESOURCE_NAME,
        "idPrefix": {"pattern": f"^({ID_PREFIX.pattern})?$"},
    },
    "AgentNvmlSettings": {
        "resourceName": _RESOURCE_NAME,
        "modelResourceNames": {"additionalProperties": {"type": "string"} | _RESOURCE_NAME},
        "cdiKind": {"pattern": _whole(CDI_KIND)},
        "libraryDir": {"pattern": f"^({LIBRARY_DIR.pattern})?$"},
    },
    "AgentWholeSettings": {"resourceName": _RESOURCE_NAME_OR_NONE},
    "AgentMpsSettings": {"pipeDirectory": _PLAIN_PATH, "shmDirectory": _PLAIN_PATH},
    "AgentLimitSettings": {
        **dict.fromkeys(("library", "preload", "directory", "lock"), _PLAIN_PATH_OR_NONE),
        "mountPath": _PLAIN_PATH,
    },
    "AgentSharesSettings": {"resourceName": _RESOURCE_NAME_OR_NONE, "reserve": {"pattern": _whole(QUANTITY)}},
    "AgentMemorySettings": {
        "resourceName": _RESOURCE_NAME,
        "unit": {"pattern": _whole(QUANTITY)},
        "reserve": {"pattern": _whole(QUANTITY)},
    },
    "AgentPathSettings": {
        "path": {"pattern": f"^(/{_PART})+$", "maxLength": MAX_PATH, "allOf": [_NO_DOUBLE_STAR]},
        "mountPath": _PLAIN_PATH_OR_NONE,
        "permissions": {"enum": _PERMISSIONS},
    },
    "AgentUsbSettings": {key: {"pattern": f"^({USB_ID.pattern})?$"} for key in ("vendor", "product")},
    "AgentSelectSettings": {
        "udev": {"patternProperties": {_whole(PROPERTY): {"type": "string"}}, "additionalProperties": False},
        "subsystems": {"items": {"type": "string", "pattern": _whole(SUBSYSTEM)}},
        "mountPath": _PLAIN_PATH_OR_NONE,
        "permissions": {"enum": _PERMISSIONS},
    },
    "AgentMountSettings": {"hostPath": _PLAIN_PATH, "containerPath": _PLAIN_PATH_OR_NONE},
    "OperatorSettings": {
        "heldDevicePolicy": _by_resource(get_args(Policy)),
    },
}


def schema() -> dict[str, Any]:
    """The whole schema as plain values."""
    made: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    for program, settings in PROGRAMS.items():
        made["$defs"] |= _definitions(program, settings)
    made["$defs"]["resourceName"] = {"type": "string"} | _RESOURCE_NAME
    made["properties"] = _with_settings(made["properties"])
    return made


def _definitions(program: str, settings: type[msgspec.Struct]) -> dict[str, Any]:
    """Every structure of a program's settings, under names that begin with the program's."""
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
