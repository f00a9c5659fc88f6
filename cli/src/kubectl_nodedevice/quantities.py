"""How many devices a pod asks for, as the scheduler counts them. Pure."""

from collections.abc import Mapping
from typing import Final

from kubectl_nodedevice.cluster import Pod

_SUFFIXES: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
# every class of DRA has an extended resource of its own, see extendedresourcecache.go of the scheduler
IMPLICIT_CLASS: Final = "deviceclass.resource.kubernetes.io/"


def count(quantity: str) -> int | None:
    """A whole number of devices; None where the text is none."""
    digits = quantity.rstrip("kKMGi")
    factor = _SUFFIXES.get(quantity[len(digits) :])
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(digits) * factor if factor and is_number else None


def is_extended(name: str) -> bool:
    """Whether it is an extended resource. Source: Kubernetes, IsExtendedResourceName and IsDRAExtendedResourceName."""
    if name.startswith(IMPLICIT_CLASS):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def requests(pod: Pod) -> Mapping[str, int]:
    """By extended resource, what the pod needs together.

    Init containers run one after the other, before the others; those that go on running count beside all that start after them.
    Source: Kubernetes, k8s.io/component-helpers/resource, PodRequests.
    """
    names = {name for each in pod.containers for name in each.requests if is_extended(name)}
    return {name: needed for name in sorted(names) if (needed := _needed(pod, name)) > 0}


def largest(pod: Pod, resource: str) -> int:
    """The most that one container asks for: with parts of devices it has to find them on one."""
    return max((count(each.requests.get(resource, "")) or 0 for each in pod.containers), default=0)


def _needed(pod: Pod, resource: str) -> int:
    at_once, peak = 0, 0
    for each in pod.containers:
        wanted = count(each.requests.get(resource, "")) or 0
        if each.is_init and not each.is_sidecar:
            peak = max(peak, at_once + wanted)
        else:
            at_once += wanted
    return max(at_once, peak)
