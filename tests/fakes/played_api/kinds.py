"""The kinds that a played API server has: paths, discovery, selectors and printed columns. Columns come from the CRDs."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import yaml

from tests.fakes.played_api.messages import Object

OURS: Final = "/apis/nodedevice.io/v1alpha1"
PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
EVENTS: Final = "/api/v1/events"
NAMESPACES: Final = "/api/v1/namespaces"
LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
NODE_DEVICES: Final = f"{OURS}/nodedevices"
POD_DEVICES: Final = f"{OURS}/poddevices"
CONFIGS: Final = f"{OURS}/nodedeviceconfigs"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS: Final = "/apis/resource.k8s.io/v1/resourceclaims"
# kinds that a server has by default
USUAL: Final = (PODS, NODES, EVENTS, NAMESPACES, LEASES, CRDS, NODE_DEVICES, POD_DEVICES, CONFIGS)

_CRDS: Final = Path(__file__).parents[3] / "crds"
_SINGULARS: Final = {
    "poddevices": "PodDevice",
    "nodedevices": "NodeDevice",
    "nodedeviceconfigs": "NodeDeviceConfig",
    "customresourcedefinitions": "CustomResourceDefinition",
    "resourceslices": "ResourceSlice",
    "resourceclaims": "ResourceClaim",
    "daemonsets": "DaemonSet",
    "configmaps": "ConfigMap",
}
_CLUSTER_SCOPED: Final = (
    "nodes",
    "namespaces",
    "customresourcedefinitions",
    "nodedevices",
    "nodedeviceconfigs",
    "resourceslices",
)
# kinds of others with a status
_STATUS: Final = ("pods", "nodes", "namespaces", "daemonsets", "deployments", "customresourcedefinitions")
_PATH: Final = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+)(?=/))?/([^/]+)(?:/([^/]+))?(?:/(\w+))?")
_LABEL: Final = re.compile(r"(!?)([\w./-]+)(?:\s*(==|!=|=)\s*([\w./-]*)|\s+(in|notin)\s*\(([^)]*)\))?")


class Place(NamedTuple):
    """What a path names. kind: the path of the kind in all namespaces. part: a subresource."""

    kind: str
    namespace: str
    name: str
    part: str


def place(path: str) -> Place | None:
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    base, namespace, plural, name, part = (unquote(each) for each in match.groups(""))
    return Place(f"{base}/{plural}", namespace, name, part)


def plural_of(kind: str) -> str:
    return kind.rpartition("/")[2]


def group_of(kind: str) -> str:
    """The API group; "" for the core."""
    return kind.split("/")[2] if kind.startswith("/apis/") else ""


def name_of(kind: str) -> str:
    """As in an object's field `kind`."""
    plural = plural_of(kind)
    return _SINGULARS.get(plural) or plural.removesuffix("s").capitalize()


def version_of(kind: str) -> str:
    """As in an object's field `apiVersion`."""
    return kind.rpartition("/")[0].split("/", 2)[2]


# -- discovery ----------------------------------------------------------------------------------------------------------------


def discovered(path: str, kinds: Iterable[str]) -> Object | None:
    """The document at this path, for these kinds; None if it has none."""
    if path == "/version":
        return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    groups = {version_of(kind): group_of(kind) for kind in kinds if group_of(kind)}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in groups.items()]}
    served = [kind for kind in kinds if kind.rpartition("/")[0] == path]
    if not served:
        return None
    resources = [part for kind in served for part in _resources(kind)]
    version = version_of(served[0])
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _group(version: str, name: str) -> Object:
    served = {"groupVersion": version, "version": version.rpartition("/")[2]}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resources(kind: str) -> list[Object]:
    plural, singular = plural_of(kind), name_of(kind)
    resource = {
        "name": plural,
        "singularName": singular.lower(),
        "namespaced": plural not in _CLUSTER_SCOPED,
        "kind": singular,
    }
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    part = {**resource, "name": f"{plural}/status", "singularName": "", "verbs": ["get", "patch", "update"]}
    return [{**resource, "verbs": verbs}, *([part] if has_status(kind) else [])]


# -- selectors ----------------------------------------------------------------------------------------------------------------


def at(content: Any, path: str) -> Any:
    """The value at a path such as `.spec.nodeName`; None if it is missing."""
    for key in path.strip(".").split("."):
        content = content.get(key) if isinstance(content, dict) else None
    return content


def fields_of(query: Mapping[str, str]) -> list[tuple[str, bool, str]]:
    """Terms of a field selector: path, whether it must be equal, value."""
    terms = filter(None, query.get("fieldSelector", "").split(","))
    parts = (term.partition("!=") if "!=" in term else term.partition("=") for term in terms)
    return [(path, sign == "=", value.removeprefix("=")) for path, sign, value in parts]


class Selector:
    """Selects as a query of a list or a watch does."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self._fields, self._labels = fields_of(query), _LABEL.findall(query.get("labelSelector", ""))

    def has_name(self, name: str) -> bool:
        return all((value == name) is is_equal for path, is_equal, value in self._fields if path == "metadata.name")

    def has(self, content: Object) -> bool:
        labels = at(content, "metadata.labels") or {}
        return all(((at(content, path) or "") == value) is is_equal for path, is_equal, value in self._fields) and all(
            _has_label(labels, *term) for term in self._labels
        )


def _has_label(
    labels: Mapping[str, str], absent: str, name: str, sign: str, value: str, word: str, values: str
) -> bool:
    listed: Collection[str] = {each.strip() for each in values.split(",")} if word else {value}
    if not sign and not word:
        return (name in labels) is not bool(absent)
    is_wanted = word == "in" or sign in ("=", "==")
    return (labels.get(name) in listed) is is_wanted


@cache
def _version_in_crd(plural: str) -> Object:
    crd = yaml.load((_CRDS / f"{plural}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    version: Object = crd["spec"]["versions"][0]
    return version


def has_status(kind: str) -> bool:
    """Whether a status is written by a subresource, and only by that."""
    plural = plural_of(kind)
    return "status" in _version_in_crd(plural).get("subresources", {}) if kind.startswith(OURS) else plural in _STATUS


def selectable_fields(kind: str) -> frozenset[str]:
    """Fields by which objects of one of our kinds can be selected."""
    version = _version_in_crd(plural_of(kind))
    paths = {each["jsonPath"].removeprefix(".") for each in version.get("selectableFields", ())}
    return frozenset({"metadata.name", "metadata.namespace", *paths})


# -- rows ---------------------------------------------------------------------------------------------------------------------


@cache
def columns_of(plural: str) -> tuple[Object, ...]:
    """Columns of one of our kinds as a Table describes them, each with its path."""
    name = {"name": "Name", "type": "string", "format": "name", "jsonPath": ".metadata.name"}
    columns = ({"format": "", "priority": 0, **each} for each in _version_in_crd(plural)["additionalPrinterColumns"])
    by_path = "Custom resource definition column (in JSONPath format): "
    return (
        {"priority": 0, "description": "", **name},
        *({"description": by_path + each["jsonPath"], **each} for each in columns),
    )


def cell(content: Object, path: str) -> Any:
    """What a column shows; None if the object lacks it."""
    if "conditions" not in path:
        return at(content, path)
    key, _, rest = path.partition("@.")[2].partition("==")
    wanted, field = rest.split('"')[1], path.rpartition(".")[2]
    conditions = at(content, ".status.conditions") or []
    return next((each[field] for each in conditions if each[key] == wanted), None)
