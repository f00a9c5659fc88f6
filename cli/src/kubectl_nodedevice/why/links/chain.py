"""The chain from a pod's request to its running containers, and the first link that is broken. Pure."""

from typing import Any, Final

from kubectl_nodedevice.cluster import Pod
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.text import some
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.links import bound
from kubectl_nodedevice.why.reasons.bound import BOUND
from kubectl_nodedevice.why.reasons.early import EARLY
from kubectl_nodedevice.why.reasons.unbound import UNBOUND

DONE, BROKEN, OPEN = "done", "broken", "open"
_OF_CONTAINERS: Final = frozenset({"ImageNotPulled", "DeviceFileRefused", "ContainerNotStarted"})
# titles of the links, and the codes of findings that break each
_LINKS: Final = (
    ("Request", frozenset(row.code for row in EARLY)),
    ("Node", frozenset(row.code for row in UNBOUND)),
    ("Devices", frozenset(row.code for row in BOUND) - _OF_CONTAINERS),
    ("Containers", _OF_CONTAINERS),
)


def of(facts: Facts, found: Explanation) -> list[dict[str, Any]]:
    """Return links with title, state, text, and the codes that break them. After a broken link all are open."""
    pod = facts.pod
    texts = {
        "Request": _requested(pod),
        "Node": f"bound to {pod.node}" if pod is not None and pod.node else "no node yet",
        "Devices": _devices(facts, pod),
        "Containers": "all run" if not found.is_stopped else "not running",
    }
    is_done = {
        "Request": pod is not None,
        "Node": pod is not None and bool(pod.node),
        "Devices": pod is not None and bool(bound.held(facts, pod)),
        "Containers": not found.is_stopped,
    }
    links, is_broken = [], False
    for title, codes in _LINKS:
        broken = [each.code for each in found.findings if each.code in codes]
        state = OPEN if is_broken else BROKEN if broken else DONE if is_done[title] else OPEN
        is_broken = is_broken or state != DONE
        links.append({"title": title, "state": state, "text": texts[title], "codes": broken})
    return links


def _requested(pod: Pod | None) -> str:
    if pod is None:
        return "the pod does not exist"
    wanted = [*(f"{number} {name}" for name, number in requests(pod).items()), *(f"claim {c.name}" for c in pod.claims)]
    return some(wanted) or "no devices"


def _devices(facts: Facts, pod: Pod | None) -> str:
    held = [*bound.held(facts, pod)] if pod is not None else []
    number = sum(len(each.device_ids) + sum(part.parts for part in each.parts) for _, each in held)
    return f"{number:,} allocated" if number else "none allocated yet"
