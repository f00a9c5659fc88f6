"""Counts the devices that a pod requests, as the scheduler does. Pure."""

import re
from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

from nodedevice_kube.planner import Need

from kubectl_nodedevice.cluster import Pod

# Each DeviceClass has such an extended resource. Source: kube-scheduler, extendedresourcecache.go
IMPLICIT_CLASS: Final = "deviceclass.resource.kubernetes.io/"
# The greatest Quantity by definition; a greater number counts as this one.
_MOST: Final = 2**63 - 1
_MOST_CHARACTERS: Final = 10_000
# fewer digits than the greatest Quantity
_FEW_DIGITS: Final = 18
_FORM: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_SCALE: Final = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# Anyone can write any exponent: a number that is too great becomes infinite, without an error.
_CONTEXT: Final = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_GREATEST_EXPONENT: Final = Decimal(10**8)


def count(quantity: str) -> int | None:
    """Return a whole number of devices within ±(2^63 - 1); None for any other text ("1500m", "one").

    Reads every form that the API server stores: 1e3, +3, 003, 1Ki. Source: k8s.io/apimachinery pkg/api/resource, Quantity.
    """
    if quantity.isascii() and quantity.isdigit() and len(quantity) <= _FEW_DIGITS:
        return int(quantity)
    found = amount(quantity)
    return int(found) if found is not None and found == found.to_integral_value() else None


def amount(quantity: str) -> Decimal | None:
    """Return any quantity, such as 1.5 for "1500m" of cpu; None if it is invalid."""
    match = _FORM.fullmatch(quantity.strip()) if len(quantity) <= _MOST_CHARACTERS else None
    suffix = (match[3] or "") if match else ""
    if match is None or suffix not in _SCALE:
        return None
    number = Decimal(match[1])
    if match[2]:
        exponent = min(max(Decimal(match[2]), -_GREATEST_EXPONENT), _GREATEST_EXPONENT)
        scaled = number.scaleb(int(exponent), _CONTEXT)
    else:
        scaled = _CONTEXT.multiply(number, _SCALE[suffix])
    return min(max(scaled, Decimal(-_MOST)), Decimal(_MOST))


def is_extended(name: str) -> bool:
    """Source: Kubernetes, IsExtendedResourceName and IsDRAExtendedResourceName."""
    if name.startswith(IMPLICIT_CLASS):
        return True
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def requests(pod: Pod) -> Mapping[str, int]:
    """Return how many units of each extended resource the pod needs at one time.

    Init containers run before the others, one after the other. Sidecars count together with all later containers.
    Source: Kubernetes, k8s.io/component-helpers/resource, PodRequests.
    """
    names = {name for each in pod.containers for name in each.requests if is_extended(name)}
    return {name: needed for name in sorted(names) if (needed := int(_needed(pod, name, count))) > 0}


def needs_of(pod: Pod, resource: str) -> tuple[Need, ...]:
    found = ((count(each.requests.get(resource, "")) or 0, each) for each in pod.containers)
    return tuple(Need(n, each.is_init and not each.is_sidecar, each.name) for n, each in found if n > 0)


def exceeding(pod: Pod, allocatable: Mapping[str, str]) -> list[str]:
    """Return resources other than devices, such as cpu, that the pod requests in excess of `allocatable`."""
    names = sorted({name for each in pod.containers for name in each.requests if not is_extended(name)})
    known = [(name, amount(allocatable[name])) for name in names if name in allocatable]
    return [name for name, most in known if most is not None and _needed(pod, name, amount) > most]


def _needed(pod: Pod, name: str, read: Callable[[str], Decimal | int | None]) -> Decimal:
    at_once, peak = Decimal(0), Decimal(0)
    for each in pod.containers:
        wanted = read(each.requests.get(name, "")) or 0
        if each.is_init and not each.is_sidecar:
            peak = max(peak, at_once + wanted)
        else:
            at_once += wanted
    return max(at_once, peak)
