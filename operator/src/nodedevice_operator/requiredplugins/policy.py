"""The policy that makes a pod wait for its node's agent: a MutatingAdmissionPolicy with the managed resource names as literals.

A pod that asks for one of them gets an annotation: the runtime (NRI's default validator) then starts its containers only while the
plugin `nodedevice` is connected. The policy itself contains the names: a missing parameter object would refuse every pod of the
cluster. Builds the specs of the two objects and plans the writes; sends nothing.

Source: NRI v0.12 plugins/default-validator and pkg/plugin/annotations.go; MutatingAdmissionPolicy v1, measured on Kubernetes 1.37.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nodedevice_api.extended_resources import domain_of
from nodedevice_api.names import DELIVERY_NRI, Reason
from nodedevice_api.names import NRI_PLUGIN as PLUGIN
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION as ANNOTATION
from nodedevice_common.fair_places import EXCHANGE_SECONDS, spare

from nodedevice_operator.objects.instance import labelled
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real

NAME: Final = "nodedevice-required-plugins"
API_VERSION: Final = "admissionregistration.k8s.io/v1"
POLICY: Final = "MutatingAdmissionPolicy"
BINDING: Final = "MutatingAdmissionPolicyBinding"
POLICIES: Final = "mutatingadmissionpolicies"
BINDINGS: Final = "mutatingadmissionpolicybindings"
KINDS: Final = {POLICIES: POLICY, BINDINGS: BINDING}

# The API server enforces a changed policy within its refresh interval of a second, each replica for itself.
SETTLE_SECONDS: Final = 2.0

# All names are literals of one expression, and the API server's parser rejects one of more than 100,000 code points.
MOST_CHARACTERS: Final = 90_000
MOST_NAMES_OF_NODE: Final = 64

# The forms of an existing value that are parsed: YAML's two forms of a list, of plain or quoted names. The patterns run in RE2 in
# the API server and in Python here, so they fit both: white space is spelled out, as RE2's is ASCII and Python's is not; and each
# text matches in one way at most, as Python would try all ways. A list names us when our name is in it between two separators.
_SPACE: Final = r"[ \t\n\f\r]"
_ITEM: Final = r"""([A-Za-z0-9][A-Za-z0-9_.-]*|"[A-Za-z0-9_. -]*"|'[A-Za-z0-9_. -]*')"""
_OURS: Final = f"""({PLUGIN}|"{PLUGIN}"|'{PLUGIN}')"""
_FLOW: Final = rf"^{_SPACE}*\[{_SPACE}*{_ITEM}{_SPACE}*(,{_SPACE}*{_ITEM}{_SPACE}*)*\]{_SPACE}*$"
_OURS_IN_FLOW: Final = rf"[\[,]{_SPACE}*{_OURS}{_SPACE}*[,\]]"
_BLOCK: Final = rf"^(- +{_ITEM} *\n)*- +{_ITEM} *\n?$"
_OURS_IN_BLOCK: Final = rf"(^|\n)- +{_OURS} *(\n|$)"

# the names in a policy of ours
_LITERALS: Final = re.compile(r"r in \[([^\]]*)\]")

Spec = Mapping[str, Any]
# the stored specs of the two objects by kind (their plural); None if the object does not exist
Stored = Mapping[str, Spec | None]


@dataclass(frozen=True, slots=True)
class Share:
    """The places of a node with too many names: placed names, names that lost their place, and the time of the next exchange."""

    placed: frozenset[str]
    lost: frozenset[str] = frozenset()
    next_exchange: float = -math.inf


@dataclass(frozen=True, slots=True)
class PolicyNames:
    """names: the names for the policy, sorted. left_out: excluded names, and why. shares: by node."""

    names: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    shares: Mapping[str, Share] = field(default_factory=dict, compare=False)


def is_candidate(record: NodeDeviceRecord, node: NodeRecord | None) -> bool:
    """Whether its name may be in the policy: its agent works by NRI, this Node exists and owns it, and its plugin is not gone."""
    is_used = record.delivery == DELIVERY_NRI and not record.is_only_shown and not record.is_gone
    return is_used and node is not None and node.uid == record.owner_uid and is_real(record)


def select(
    candidates: Iterable[NodeDeviceRecord],
    patterns: Collection[str] = ("*",),
    before: PolicyNames = PolicyNames(),
    now: float = 0.0,
) -> PolicyNames:
    """One node cannot fill the policy, nor one domain a node's places. patterns: allowed names. before: the last selection."""
    allowed = re.compile("|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns))
    by_node: dict[str, list[NodeDeviceRecord]] = defaultdict(list)
    for record in candidates:
        by_node[record.node].append(record)
    left_out: dict[str, str] = {}
    oldest: dict[str, str] = {}
    shares: dict[str, Share] = {}
    for node, found in by_node.items():
        matching = [record for record in found if allowed.fullmatch(record.resource)]
        left_out |= dict.fromkeys((record.resource for record in found), Reason.NAME_EXCLUDED)
        left_out |= dict.fromkeys((record.resource for record in matching), Reason.TOO_MANY_NAMES)
        if len(matching) > MOST_NAMES_OF_NODE:
            shares[node] = _share(matching, before.shares.get(node, Share(frozenset(before.names))), now)
            matching = [record for record in matching if record.resource in shares[node].placed]
        for record in matching:
            oldest[record.resource] = min(record.created, oldest.get(record.resource, record.created))
    names: set[str] = set()
    length = len(_asks(()))
    for name in sorted(oldest, key=lambda name: (oldest[name], name)):
        if length + len(_literal(name)) <= MOST_CHARACTERS:
            length += len(_literal(name))
            names.add(name)
            del left_out[name]
    return PolicyNames(tuple(sorted(names)), left_out, shares)


def _share(records: Iterable[NodeDeviceRecord], before: Share, now: float) -> Share:
    """Assigns the places of a node with too many names: holders keep them; free places go round by domain.

    A domain with fewer places then gets the place of an unneeded name, at most one a minute. A name that has lost its place cannot
    take another's, so that two never alternate.
    """
    by_age = {record.resource: record for record in sorted(records, key=lambda record: record.age)}
    placed = [name for name in by_age if name in before.placed][:MOST_NAMES_OF_NODE]
    counts = Counter(map(domain_of, placed))
    waiting = [name for name in by_age if name not in placed]
    while len(placed) < MOST_NAMES_OF_NODE:
        name = min(waiting, key=lambda name: counts[domain_of(name)])
        waiting.remove(name)
        placed.append(name)
        counts[domain_of(name)] += 1
    lost = before.lost.intersection(waiting)
    if now < before.next_exchange:
        return Share(frozenset(placed), lost, before.next_exchange)
    taken = {name: _is_needed(record) for name, record in by_age.items() if name in placed}
    for name in sorted((name for name in waiting if name not in lost), key=lambda name: counts[domain_of(name)]):
        if loser := spare(name, taken):
            after = frozenset(placed) - {loser} | {name}
            return Share(after, lost | {loser}, now + EXCHANGE_SECONDS)
    return Share(frozenset(placed), lost)


def _is_needed(record: NodeDeviceRecord) -> bool:
    return bool(record.allocated or record.releasing or record.waiting or record.cordons)


def plan(names: tuple[str, ...], stored: Stored) -> dict[str, Spec | None]:
    """The writes that leave exactly these names, in order; None deletes. The binding does nothing without its policy."""
    if not names:
        return {kind: None for kind in (BINDINGS, POLICIES) if stored.get(kind) is not None}
    wanted = {POLICIES: policy_spec(names), BINDINGS: binding_spec()}
    return {kind: spec for kind, spec in wanted.items() if stored.get(kind) != spec}


def guarded_by(stored: Stored) -> frozenset[str]:
    """Resource names that these objects guard, if they equal the operator's own specs; none otherwise."""
    policy = stored.get(POLICIES)
    if policy is None or stored.get(BINDINGS) != binding_spec():
        return frozenset()
    found = _LITERALS.search(str(policy.get("matchConditions")))
    names = tuple(re.findall(r'"([^"]+)"', found[1])) if found else ()
    return frozenset(names) if names and policy == policy_spec(names) else frozenset()


def is_annotated(annotations: Mapping[str, str], longest: float = math.inf) -> bool:
    """Whether every key of the annotation names our plugin, as the policy makes it. longest: longer values are not read."""
    keys = (ANNOTATION, *(key for key in annotations if key.startswith(f"{ANNOTATION}/")))
    values = [annotations.get(key, "") for key in keys]
    return sum(map(len, values)) <= longest and all(map(_names_us, values))


def _names_us(value: str) -> bool:
    # not `search`: to Python, though not to RE2, `$` is also before a last newline
    if re.fullmatch(_FLOW, value):
        return re.search(_OURS_IN_FLOW, value) is not None
    return re.fullmatch(_BLOCK, value) is not None and re.search(_OURS_IN_BLOCK, value) is not None


def body(kind: str, spec: Spec, instance: str = "") -> dict[str, Any]:
    """The whole object of that kind (its plural), for server-side apply. instance: as in the settings."""
    return {
        "apiVersion": API_VERSION,
        "kind": KINDS[kind],
        "metadata": {"name": NAME, **labelled(instance, {"app.kubernetes.io/managed-by": "nodedevice-operator"})},
        "spec": dict(spec),
    }


def binding_spec() -> dict[str, Any]:
    return {"policyName": NAME}


def policy_spec(names: tuple[str, ...]) -> dict[str, Any]:
    """Spec of the policy for these resource names, with every default of the API spelt out, so that it can be compared."""
    return {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    # annotations may be changed while a pod waits for its start: a removed one is restored
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["pods"],
                    "scope": "*",
                }
            ],
        },
        "matchConditions": [{"name": "asks-for-a-managed-resource", "expression": _asks(names)}],
        "variables": [
            {"name": "before", "expression": "object.metadata.?annotations.orValue({})"},
            # a key for one container, or for the pod, overrides the plain one: it must not be a way around the policy
            {"name": "keys", "expression": f"variables.before.map(k, k).filter(k, k.startsWith('{ANNOTATION}/'))"},
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": "Object{metadata: Object.metadata{annotations: "
                    f"(['{ANNOTATION}'] + variables.keys).transformMapEntry(i, k, {{k: {_merged()}}})}}}}"
                },
            }
        ],
    }


def _asks(names: tuple[str, ...]) -> str:
    literals = "".join(map(_literal, names)).removesuffix(", ")
    return (
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.?resources.limits.orValue({})"
        f".exists(r, r in [{literals}] && string(c.resources.limits[r]) != '0'))"
    )


def _literal(name: str) -> str:
    return f"{json.dumps(name)}, "


def _merged() -> str:
    """The value of the key `k` with our name in it. Anything but a plain list of names is replaced: it might hide ours."""
    value = "variables.before[?k].orValue('')"

    def matches(pattern: str) -> str:
        # a string literal of CEL: JSON's escapes are CEL's too
        return f"{value}.matches({json.dumps(pattern)})"

    return (
        f"{matches(_FLOW)} ? ({matches(_OURS_IN_FLOW)} ? {value} : {value}.replace(']', ', {PLUGIN} ]')) : "
        f"{matches(_BLOCK)} ? ({matches(_OURS_IN_BLOCK)} ? {value} : "
        f"{value} + ({value}.endsWith('\\n') ? '' : '\\n') + '- {PLUGIN}\\n') : "
        f"'[ {PLUGIN} ]'"
    )
