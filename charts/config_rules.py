"""The rules of the agent's settings that types cannot express. This is their only source.

`make generate` joins them with the types and bounds of the settings, and makes of that what checks a configuration at each entry
point: config_rules.json of agent, command and chart, and the CRD NodeDeviceConfig. Patterns are read by Python, by Go and by
ECMAScript: no look-around, and no `$` but as the end of a text.
`pattern` says the same to an API server, which would not bear the cost of a rule for each path.
With `x-or-empty` an empty text is possible too.

A rule of a text has `is` or `not`, `message`, which follows the text, and `fixes`: what turns a probable text into the one meant.
A rule of an object has `oneOf`, `anyOf` or `excludes`, or the name of a check in nodedevice_kube.config_checks.
"""

from re import Pattern
from typing import Any, Final

import msgspec
from nodedevice_agent.plugins.contract import OneResource
from nodedevice_agent.plugins.generic.settings import (
    GenericSettings,
    GroupSettings,
    MountSettings,
    PathSettings,
    SelectSettings,
    UsbSettings,
)
from nodedevice_agent.plugins.nvml.settings import (
    LimitSettings,
    MemorySettings,
    MpsSettings,
    NvmlSettings,
    SharesSettings,
    SharingRule,
    WholeSettings,
)
from nodedevice_agent.plugins.settings import ConfiguredPlugins, PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.settings import AgentSettings
from nodedevice_api import extended_resources

Rule = dict[str, Any]

MAX_PATH: Final = 4096
# maximum length of a Unix socket's address
MAX_SOCKET: Final = 107


def _is(pattern: str, message: str, *fixes: tuple[str, str]) -> Rule:
    return {"is": pattern, "message": message} | ({"fixes": [[*fix] for fix in fixes]} if fixes else {})


def _not(pattern: str, message: str, *fixes: tuple[str, str]) -> Rule:
    return {"not": pattern, "message": message} | ({"fixes": [[*fix] for fix in fixes]} if fixes else {})


def _whole(pattern: "Pattern[str]") -> str:
    return f"^{pattern.pattern}$"


_DOMAIN, _NAME = extended_resources.DOMAIN.pattern, extended_resources.NAME.pattern
_PLAIN: Final = [
    _is("^/", "must be an absolute path, such as /dev/ttyUSB0", ("^", "/")),
    _not("(^|/)[.][.](/|$)", "must be a plain path, without .."),
    _not("//", "must be a plain path, without //", ("/+", "/")),
    _not("[\x00]", "is not a path: it has a NUL"),
]
MAX_WILDCARDS: Final = 8
_TEXT_OF_WILDCARDS: Final = rf"^[^*?\[]*([*?\[][^*?\[]*){{0,{MAX_WILDCARDS}}}$"
_WILDCARDS: Final = _is(_TEXT_OF_WILDCARDS, f"has more than {MAX_WILDCARDS} wildcards; use fewer")
_NAMES: Final = [
    _is("/", "must be domain/name, such as vendor.com/gpu"),
    _not(
        "kubernetes[.]io/",
        "is reserved by Kubernetes, as it is in kubernetes.io; use a domain of your own, such as vendor.com/gpu",
    ),
    _not("^requests[.]", "is read by Kubernetes as a quota, as it begins with requests.; use another domain"),
    _is(
        f"^[^/]{{0,{extended_resources.MAX_DOMAIN}}}/",
        f"has a domain of more than {extended_resources.MAX_DOMAIN} characters",
    ),
    _is(f"^{_DOMAIN}/", "must begin with a lower-case DNS name, such as vendor.com, before the slash", ("lower", "")),
    _is(
        f"^[^/]*/{_NAME}$",
        "must end, after its one slash, in 1 to 63 of letters, digits, - _ . that begin and end with a letter or digit",
    ),
]
_PERMISSIONS: Final = _is(
    "^(r|w|m|rw|rm|wr|wm|mr|mw|rwm|rmw|wrm|wmr|mrw|mwr)$",
    "must be some of the letters r, w and m, each once; try rw",
    ("^[rwx]+$", "rw"),
)
_QUANTITY: Final = _is(
    "^[0-9]{1,15}(Mi|Gi)$", "must be a whole number of Mi or Gi, such as 512Mi or 1Gi", ("([MG])i?B?$", r"\1i")
)
_USB_ID: Final = _is(
    "^[0-9A-Fa-f]{4}$",
    'must be four hexadecimal digits in quotes, such as "0403"; lsusb lists them',
    ("^0[xX]", ""),
    ("^", "0"),
)
_ABSOLUTE: Final = _is("^/", "is a relative path: set an absolute one", ("^", "/"))
_NUMA: Final = "(0?[0-9]{1,3}|10[01][0-9]|102[0-3])"


def text(*rules: Rule, most: int = 0, example: str = "", **more: Any) -> Rule:
    more |= {"x-example": example} if example else {}
    return {"x-rules": [*rules]} | ({"maxLength": most} if most else {}) | more


_OR_EMPTY: Final[dict[str, Any]] = {"x-or-empty": True}
# A part of a path between two slashes: neither empty nor `..`.
_PART: Final = "([^/]|[^/][^/.]|[^/.][^/]|[^/]{3,})"
_NAMED: Final = text(
    *_NAMES,
    most=309,
    pattern=f"^{_DOMAIN}/{_NAME}$",
    allOf=[{"pattern": f"^[^/]{{0,{extended_resources.MAX_DOMAIN}}}/"}],
)
_NAMED_OR_EMPTY: Final = _NAMED | _OR_EMPTY
_PATH: Final = text(*_PLAIN, most=MAX_PATH, pattern=f"^/({_PART}(/{_PART})*/?)?$")
_PATH_OR_EMPTY: Final = _PATH | _OR_EMPTY
_MATCHED: Final = text(_WILDCARDS, most=MAX_PATH)

# by the settings class or a base class, and a key of it; "" for the object itself
RULES: Final[dict[type[msgspec.Struct], dict[str, Rule]]] = {
    PathSettings: {
        "path": text(
            *_PLAIN,
            _is("[^/]$", "names a directory; name its device files", ("$", "*")),
            _not("[*][*]", "has **; a wildcard stays within one directory, so write one * for each level"),
            _WILDCARDS,
            most=MAX_PATH,
            pattern=f"^(/{_PART})+$",
            allOf=[{"pattern": r"^([^*]|[*][^*])*[*]?$"}, {"pattern": _WILDCARDS["is"]}],
        ),
        "mountPath": _PATH_OR_EMPTY,
        "permissions": text(_PERMISSIONS),
    },
    MountSettings: {"hostPath": _PATH, "containerPath": _PATH_OR_EMPTY},
    UsbSettings: {
        "": {
            "x-rules": [
                {
                    "anyOf": ["vendor", "product", "serial", "port"],
                    "message": "selects nothing; set vendor, product, serial or port",
                }
            ]
        },
        "vendor": text(_USB_ID, **_OR_EMPTY, example="0403"),
        "product": text(_USB_ID, **_OR_EMPTY, example="6001"),
        "serial": _MATCHED,
        "port": _MATCHED,
    },
    SelectSettings: {
        "": {
            "x-rules": [
                {"anyOf": ["usb", "udev", "subsystems"], "message": "selects nothing; set usb, udev or subsystems"}
            ]
        },
        "udev": {
            "x-keys": [
                _is(
                    "^[A-Za-z_][A-Za-z0-9_.:-]*$",
                    "is not the name of a property; udevadm info lists them, such as ID_SERIAL",
                    ("[ -]", "_"),
                )
            ],
            "additionalProperties": _MATCHED,
        },
        "subsystems": {
            "items": text(
                _is(
                    "^[A-Za-z0-9][A-Za-z0-9_.-]*$", "is not the name of a subsystem; /sys/class lists them, such as tty"
                ),
                most=253,
            )
        },
        "mountPath": _PATH_OR_EMPTY,
        "permissions": text(_PERMISSIONS),
    },
    GroupSettings: {
        "": {
            "x-rules": [
                {
                    "oneOf": ["paths", "select"],
                    "message": "needs either paths or select, and not both; split the group or set one",
                },
                {
                    "excludes": ["select", "allowFiles"],
                    "message": "has select, which finds device files only, and allowFiles; remove allowFiles",
                },
                {"check": "group"},
            ]
        },
        "env": {
            "x-keys": [
                _is(
                    "^[A-Za-z_][A-Za-z0-9_.-]*$",
                    "is not the name of an environment variable; use letters, digits and _",
                    (" ", "_"),
                )
            ]
        },
    },
    OneResource: {"resourceName": _NAMED},
    GenericSettings: {"": {"x-rules": [{"check": "groups", "always": True}]}},
    SimulatedSettings: {
        "": {"x-rules": [{"check": "simulated"}]},
        "idPrefix": text(
            _is(
                "^[A-Za-z0-9]([A-Za-z0-9._-]{0,52}[A-Za-z0-9])?$",
                "must be 1 to 54 of letters, digits, - _ . and begin and end with a letter or digit",
            ),
            **_OR_EMPTY,
        ),
    },
    ConfiguredPlugins: {"": {"x-rules": [{"check": "names", "always": True}]}},
    PluginSettings: {"hostRoot": _PATH},
    WholeSettings: {"resourceName": _NAMED_OR_EMPTY},
    LimitSettings: {
        **dict.fromkeys(("library", "preload", "directory", "lock"), _PATH_OR_EMPTY),
        "mountPath": _PATH,
    },
    MpsSettings: {"pipeDirectory": _PATH, "shmDirectory": _PATH},
    SharesSettings: {"resourceName": _NAMED_OR_EMPTY, "reserve": text(_QUANTITY, most=17)},
    MemorySettings: {
        "resourceName": _NAMED,
        "unit": text(_QUANTITY, _not("^0+[MG]i$", "is no memory; use 1Gi or another amount"), most=17),
        "reserve": text(_QUANTITY, most=17),
    },
    SharingRule: {
        "": {
            "x-rules": [
                {
                    "oneOf": ["whole", "shares", "memory"],
                    "message": "has to name one use of its GPUs: either whole, shares or memory",
                }
            ]
        }
    },
    NvmlSettings: {
        "": {"x-rules": [{"check": "nvml"}]},
        "resourceName": _NAMED,
        "modelResourceNames": {"additionalProperties": _NAMED},
        "handOver": {
            "x-rules": [
                {"alone": "auto", "message": "auto chooses by itself; set it alone, or name the other ways without it"}
            ]
        },
        "cdiKind": text(
            _is(
                "^[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?$",
                "must be vendor/class, such as nvidia.com/gpu: each begins with a letter and ends with a letter or digit",
            )
        ),
        "exempt": {
            "items": text(
                _is(
                    r"^[a-z0-9*?\[\]!.-]{1,253}(/[a-z0-9*?\[\]!.-]{1,253})?$",
                    "must be a namespace or namespace/pod, with * and ? where needed",
                )
            )
        },
        "libraryDir": text(
            _is("^/[^:;\x00-\x1f\x7f]*$", "must be one absolute path, such as /usr/lib/x86_64-linux-gnu"),
            **_OR_EMPTY,
        ),
    },
    AgentSettings: {
        "": {"x-rules": [{"check": "settings", "always": True}]},
        "nodeName": text(
            _is(
                "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
                "is not the name of a Node",
                ("lower", ""),
            ),
            most=253,
            **_OR_EMPTY,
        ),
        "stateDir": text(_ABSOLUTE, most=MAX_SOCKET - len("/pod-resources/kubelet.sock")),
        "pluginDir": text(_ABSOLUTE, most=MAX_SOCKET - len("/kubelet.sock")),
        "kubeletDir": text(_ABSOLUTE),
        "nriSocket": text(_ABSOLUTE, most=MAX_SOCKET),
        "podResourcesSocket": text(_ABSOLUTE, most=MAX_SOCKET, **_OR_EMPTY),
        "pluginsRegistryDir": text(_ABSOLUTE, **_OR_EMPTY),
        "runtimeConfig": text(_ABSOLUTE, **_OR_EMPTY),
        "allocateRetry": {
            "x-keys": [{**each, "is": f"^[*]$|{each['is']}"} if "is" in each else each for each in _NAMES]
        },
        "nriIndex": {"x-example": "10"},
        "numaNodes": text(
            _is(f"^ *({_NUMA}(-{_NUMA})?( *, *{_NUMA}(-{_NUMA})?)*)? *$", "must be a list such as 0 or 0-1,4"),
            most=1000,
            example="0",
        ),
        "allowedHostPaths": {"items": _PATH},
    },
}
# Settings that a file accepts and an object of the API refuses.
CONFIG_RULES: Final[dict[type[msgspec.Struct], dict[str, Rule]]] = {
    NvmlSettings: {
        **RULES[NvmlSettings],
        "libraryDir": text(
            _is(
                "^$",
                "is not allowed in a NodeDeviceConfig, because the agent loads that library; set it in agents.config of the chart",
            )
        ),
    },
}
