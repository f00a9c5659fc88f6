"""Decides which nodes a pod may run on, apart from devices: selectors, affinity, taints. Pure.

Source: kube-scheduler's plugins NodeAffinity, NodeUnschedulable and TaintToleration.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from nodedevice_kube.fields import list_of, map_of, text_of

from kubectl_nodedevice.cluster import Node, Pod, Taint
from kubectl_nodedevice.why.explanation import Obstacle

# The node controller sets it in addition to spec.unschedulable.
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
# such as not-ready, unreachable and memory-pressure
_CONTROL_PLANES: Final = "node.kubernetes.io/"


def tolerates(pod: Pod, taint: Taint) -> bool:
    return any(each.tolerates(taint) for each in pod.tolerations)


def obstacles(pod: Pod, node: Node) -> Iterator[Obstacle]:
    lacking = unmatched(pod, node)
    if lacking:
        yield Obstacle("NodeSelector", node.meta.name, detail=f"it lacks {lacking}")
    if is_cordoned_for(pod, node):
        yield Obstacle("NodeCordoned", node.meta.name)
    codes = set()
    for taint in repelling_taints(pod, node):
        # These taints follow the node's state: their removal does not help.
        code = "NodeNotReady" if taint.key.startswith(_CONTROL_PLANES) else "NodeTaint"
        if code not in codes:
            text = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
            yield Obstacle(code, node.meta.name, detail=text, fields={"taint": f"{taint.key}:{taint.effect}"})
        codes.add(code)


def is_cordoned_for(pod: Pod, node: Node) -> bool:
    return node.unschedulable and not tolerates(pod, UNSCHEDULABLE)


def repelling_taints(pod: Pod, node: Node) -> tuple[Taint, ...]:
    """Return the taints that keep the pod off, without that of a cordoned node."""
    return tuple(
        each for each in node.taints if each.is_exclusive and each.key != UNSCHEDULABLE.key and not tolerates(pod, each)
    )


def unmatched(pod: Pod, node: Node) -> str:
    """Return the part of the pod's selector or required affinity that the node lacks; "" if it matches."""
    lacking = [f"{key}={value}" for key, value in pod.node_selector.items() if node.meta.labels.get(key) != value]
    if lacking:
        return f"nodeSelector {', '.join(sorted(lacking))}"
    required = map_of(pod.affinity, "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if required and not matches_terms(required, node):
        return f"node affinity ({_described(required)})"
    return ""


def matches_terms(selector: Mapping[str, Any], node: Node) -> bool:
    """Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity."""
    return any(_matches(term, node) for term in list_of(selector, "nodeSelectorTerms"))


def _matches(term: Any, node: Node) -> bool:
    expressions, fields = list_of(term, "matchExpressions"), list_of(term, "matchFields")
    if not expressions and not fields:
        return False
    name = {"metadata.name": node.meta.name}
    return all(_holds(each, node.meta.labels) for each in expressions) and all(_holds(each, name) for each in fields)


def _holds(expression: Any, labels: Mapping[str, str]) -> bool:
    key, operator = text_of(expression, "key"), text_of(expression, "operator")
    values, found = list_of(expression, "values"), labels.get(key)
    if operator in ("Exists", "DoesNotExist"):
        return (found is not None) == (operator == "Exists")
    if operator in ("In", "NotIn"):
        return (found in values) == (operator == "In")
    try:
        compared, bound = int(labels[key]), int(values[0])
    except (LookupError, ValueError, TypeError):
        return False
    return compared > bound if operator == "Gt" else compared < bound


def _described(selector: Mapping[str, Any]) -> str:
    terms = [
        " and ".join(_expression(each) for key in ("matchExpressions", "matchFields") for each in list_of(term, key))
        for term in list_of(selector, "nodeSelectorTerms")
    ]
    return " or ".join(each or "nothing" for each in terms)


def _expression(expression: Any) -> str:
    values = ", ".join(str(each) for each in list_of(expression, "values"))
    return f"{text_of(expression, 'key')} {text_of(expression, 'operator')} {values}".strip()
