"""How many: the API server's spelling of a whole number.

The server rewrites what it is given: 1000 comes back as "1k". Only counting is done here, as extended resources are whole.
It takes any exponent from whoever may write a Node, three million too, so nothing here may fail of a number's size.
Source: k8s.io/apimachinery pkg/api/resource, the canonical form of a Quantity.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Final

# The greatest Quantity there is by its definition; what is greater than that is counted as that.
MOST: Final = 2**63 - 1

_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_SCALE: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


# Without traps a number that is too great is infinite, and no exception; with the widest exponents hardly any is.
_CONTEXT: Final = Context(prec=28, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
# Beyond what this can be read from, all exponents mean the same: far too many, or next to nothing.
_FAR: Final = Decimal(10**8)


def count(quantity: str) -> int | None:
    """The whole number that `quantity` means, between -MOST and MOST; None where it means none ("1500m", or no quantity at all)."""
    match = _FORM.fullmatch(quantity.strip())
    if match is None or (match[3] or "") not in _SCALE:
        return None
    number = Decimal(match[1])
    if match[2]:
        exponent = int(min(max(Decimal(match[2]), -_FAR), _FAR))
        scaled = number.scaleb(exponent, _CONTEXT)
    else:
        scaled = _CONTEXT.multiply(number, _SCALE[match[3] or ""])
    if scaled != scaled.to_integral_value(context=_CONTEXT):
        return None
    return int(min(max(scaled, Decimal(-MOST)), Decimal(MOST)))
