"""How many devices a pod asks for, as the scheduler counts them. Pure."""

import re
from collections.abc import Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

from kubectl_nodedevice.cluster import Pod

# every class of DRA has an extended resource of its own, see extendedresourcecache.go of the scheduler
IMPLICIT_CLASS: Final = "deviceclass.resource.kubernetes.io/"
# The greatest Quantity by definition; a greater number counts as this one.
_MOST: Final = 2**63 - 1
_MOST_CHARACTERS: Final = 10_000
# fewer than the greatest Quantity has
_FEW_DIGITS: Final = 18
_FORM: Final = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_SCALE: Final = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("num", start=-3)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# anybody may write any exponent: too great a number becomes infinite, and raises nothing
_CONTEXT: Final = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_GREATEST_EXPONENT: Final = Decimal(10**8)


def count(quantity: str) -> int | None:
    """A whole number of devices, between -(2^63 - 1) and 2^63 - 1; None where the text is none ("1500m", "one").

    Reads every form that the API server stores: 1e3, +3, 003, 1Ki. Source: k8s.io/apimachinery pkg/api/resource, Quantity.
    """
    if quantity.isascii() and quantity.isdigit() and len(quantity) <= _FEW_DIGITS:
        return int(quantity)
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
    if scaled != scaled.to_integral_value():
        return None
    return int(min(max(scaled, Decimal(-_MOST)), Decimal(_MOST)))


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
