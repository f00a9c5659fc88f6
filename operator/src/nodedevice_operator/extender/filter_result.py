"""Results of a filter: nodes where a pod fits, and sentences why not elsewhere."""

from collections.abc import Collection
from dataclasses import dataclass, field

from nodedevice_operator.extender.promises import Promise


@dataclass(slots=True)
class Verdicts:
    """unresolvable: preemption would not help. soon: if none fits, a node that fits once its ending and tentative pods left."""

    fitting: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    soon: str = ""


@dataclass(frozen=True, slots=True)
class NotFitting:
    reason: str


def only(promise: Promise, nodes: Collection[str]) -> Verdicts:
    """The result for a pod with promised parts: the node of its promise, if it is one of these."""
    reason = bound_elsewhere(promise)
    others = {node: reason for node in nodes if node != promise.node}
    return Verdicts([node for node in nodes if node == promise.node], unresolvable=others)


def bound_elsewhere(promise: Promise) -> str:
    if promise.is_unresolved:
        return f"the outcome of the pod's bind to node {promise.node} is still unknown"
    return f"the pod is bound to node {promise.node}"
