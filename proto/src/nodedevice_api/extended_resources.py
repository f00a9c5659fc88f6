"""Extended resources by the API server's own rules: which names they may have (the CRD's CEL checks the same), and how it spells
their whole numbers. Pure.

The server rewrites numbers: 1000 comes back as "1k". Extended resources are whole numbers; amount() reads any other one.
A writer of Nodes or pods may write any exponent, such as 1e3000000: no number may fail or take long because of its size.
The client libraries' parsers do not serve: kubernetes.utils takes "NaN", "1_000" and "1K" and fails on 1e3000000k, lightkube's
fails on 1E3 and 1e30.
Source: k8s.io/apimachinery pkg/api/resource, the canonical form of a Quantity.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# `requests.<name>` must stay a valid name for quotas, and a domain has at most 253 characters
MAX_DOMAIN = 253 - len("requests.")

# The greatest Quantity by definition; a greater number counts as this one.
MOST: Final = 2**63 - 1
# The API server's own form of a number is far shorter.
_MAX_LENGTH: Final = 10_000

# less than MOST has
_MOST_DIGITS: Final = 18

_FORM = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_SCALE: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# Without traps a number that is too great becomes infinite and raises nothing; with the widest exponents hardly any does.
_CONTEXT: Final = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
# All exponents beyond this mean the same: far too many, or next to nothing.
_MAX_EXPONENT: Final = Decimal(10**8)


def domain_of(resource_name: str) -> str:
    """What stands before the slash."""
    return resource_name.partition("/")[0]


def resource_name_problem(resource_name: str) -> str:
    """Why an extended resource's name is invalid, as a sentence with the remedy; empty if it is valid."""
    domain, slash, name = resource_name.partition("/")
    if not slash:
        return "must be domain/name, such as vendor.com/gpu"
    if "kubernetes.io/" in resource_name:
        return "names in kubernetes.io are reserved by Kubernetes; use a domain of your own, such as vendor.com/gpu"
    if resource_name.startswith("requests."):
        return "a name that begins with requests. is read by Kubernetes as a quota; use another domain"
    if len(domain) > MAX_DOMAIN:
        return f"the domain may have at most {MAX_DOMAIN} characters"
    if not DOMAIN.fullmatch(domain):
        return "the part before the slash must be a lower-case DNS name, such as vendor.com"
    if not NAME.fullmatch(name):
        return "the part after the slash must be 1 to 63 of letters, digits, - _ . and begin and end with a letter or digit"
    return ""


def is_extended_resource(resource_name: str) -> bool:
    """Whether the API server takes a name in a container's limits, or in a Node's capacity, for an extended resource."""
    return "/" in resource_name and "kubernetes.io/" not in resource_name and not resource_name.startswith("requests.")


def count(quantity: str) -> int | None:
    """The whole number that `quantity` means, between -MOST and MOST; None for any other text ("1500m", or an invalid quantity)."""
    scaled = _scaled(quantity)
    if scaled is None or scaled != scaled.to_integral_value():
        return None
    return int(_bounded(scaled))


def amount(quantity: str) -> Decimal | None:
    """The same for a number that need not be whole, such as a counter of a DRA driver: "1500m" is 1.5. None if invalid."""
    scaled = _scaled(quantity)
    return _bounded(scaled) if scaled is not None else None


def _scaled(quantity: str) -> Decimal | None:
    if quantity.isascii() and quantity.isdigit() and len(quantity) <= _MOST_DIGITS:
        # as most are
        return Decimal(quantity)
    match = _FORM.fullmatch(quantity.strip()) if len(quantity) <= _MAX_LENGTH else None
    if match is None or (match[3] or "") not in _SCALE:
        return None
    number = Decimal(match[1])
    if match[2]:
        exponent = int(min(max(Decimal(match[2]), -_MAX_EXPONENT), _MAX_EXPONENT))
        return number.scaleb(exponent, _CONTEXT)
    return _CONTEXT.multiply(number, _SCALE[match[3] or ""])


def _bounded(number: Decimal) -> Decimal:
    return min(max(number, Decimal(-MOST)), Decimal(MOST))
