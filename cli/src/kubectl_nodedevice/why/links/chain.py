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
    number = _number(facts, pod)
    is_over = pod is not None and pod.is_over
    runs = not found.is_stopped and not is_over
    texts = {
        "Request": _requested(pod),
        "Node": f"bound to {pod.node}" if pod is not None and pod.node else "no node yet",
        "Devices": _devices(pod, number, runs=runs),
        "Containers": "have ended" if is_over else "all run" if runs else "not running",
    }
    is_done = {
        "Request": pod is not None,
        "Node": pod is not None and bool(pod.node),
        # a pod that has run had all that it requested
        "Devices": bool(number) or runs or is_over or (pod is not None and bool(pod.node) and not _wanted(pod)),
        "Containers": not found.is_stopped,
    }
    links, is_broken = [], False
    for title, codes in _LINKS:
        broken = [each.code for each in found.findings if each.code in codes]
        state = OPEN if is_broken else BROKEN if broken else DONE if is_done[title] else OPEN
        is_broken = is_broken or state != DONE
        links.append({"title": title, "state": state, "text": texts[title], "codes": broken})
    return links


def _wanted(pod: Pod) -> list[str]:
    return [*(f"{number} {name}" for name, number in requests(pod).items()), *(f"claim {c.name}" for c in pod.claims)]


def _requested(pod: Pod | None) -> str:
    return "the pod does not exist" if pod is None else some(_wanted(pod)) or "no devices"


def _number(facts: Facts, pod: Pod | None) -> int:
    """How many devices and parts the pod has, by its PodDevice where the person may not read NodeDevices."""
    if pod is None:
        return 0
    number = sum(len(each.device_ids) + sum(part.parts for part in each.parts) for _, each in bound.held(facts, pod))
    own = facts.pod_device
    if number or own is None or own.pod_uid != pod.meta.uid:
        return number
    held = [device for each in own.containers for resource in each.resources for device in resource.devices]
    return sum(max(each.parts, 1) for each in held)


def _devices(pod: Pod | None, number: int, *, runs: bool) -> str:
    if number:
        return f"{number:,} allocated"
    if pod is None or not (pod.is_over or runs or not _wanted(pod)):
        return "none allocated yet"
    return "none requested" if not _wanted(pod) else "released" if pod.is_over else "not known"
