"""Whole numbers as the API server spells them. Pure.

The server rewrites what it is given: 1000 comes back as "1k". Extended resources are whole numbers, so only those are read.
Whoever may write a Node or a pod may write any exponent, 1e3000000 too: no number may fail or take long because of its size.
The client libraries' parsers do not serve: kubernetes.utils takes "NaN", "1_000" and "1K" and fails on 1e3000000k, lightkube's
fails on 1E3 and 1e30.
Source: k8s.io/apimachinery pkg/api/resource, the canonical form of a Quantity.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

# The greatest Quantity by definition; a greater number counts as this one.
MOST: Final = 2**63 - 1
# The API server's own form of a number is far shorter.
_MAX_LENGTH: Final = 10_000

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


def count(quantity: str) -> int | None:
    """The whole number that `quantity` means, between -MOST and MOST; None where it means none ("1500m", or no quantity at all)."""
    match = _FORM.fullmatch(quantity.strip()) if len(quantity) <= _MAX_LENGTH else None
    if match is None or (match[3] or "") not in _SCALE:
        return None
    number = Decimal(match[1])
    if match[2]:
        exponent = int(min(max(Decimal(match[2]), -_MAX_EXPONENT), _MAX_EXPONENT))
        scaled = number.scaleb(exponent, _CONTEXT)
    else:
        scaled = _CONTEXT.multiply(number, _SCALE[match[3] or ""])
    if scaled != scaled.to_integral_value(context=_CONTEXT):
        return None
    return int(min(max(scaled, Decimal(-MOST)), Decimal(MOST)))
