"""Answers about nodes: where a pod fits, and in words why not elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nodedevice_operator.extender.promises import Promise


@dataclass(slots=True)
class Verdicts:
    """Of a filter: nodes that fit, and by node why others do not. unresolvable: a preemption there would not help.

    soon: where none fits, a node that fits once pods that end, or are promised parts elsewhere, have left it; "" without one.
    """

    fitting: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    soon: str = ""


@dataclass(frozen=True, slots=True)
class NotFitting:
    reason: str


def only(promise: Promise, nodes: Sequence[str]) -> Verdicts:
    """Of a pod that is promised its parts: the node of its promise, if it is one of these."""
    reason = bound_elsewhere(promise)
    others = {node: reason for node in nodes if node != promise.node}
    return Verdicts([node for node in nodes if node == promise.node], unresolvable=others)


def bound_elsewhere(promise: Promise) -> str:
    """Why no other node than that of its promise will do."""
    if promise.is_unresolved:
        return f"it is not known yet whether the API server has bound the pod to node {promise.node}"
    return f"the pod is bound to node {promise.node}"
