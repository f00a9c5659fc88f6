"""How many: the API server's spelling of a whole number.

The server rewrites what it is given: 1000 comes back as "1k". Only counting is done here, as extended resources are whole.
Source: k8s.io/apimachinery pkg/api/resource, the canonical form of a Quantity.
"""

import re
from decimal import Decimal
from typing import Final

_FORM = re.compile(r"([+-]?[0-9]*\.?[0-9]+|[+-]?[0-9]+\.)(?:[eE]([+-]?[0-9]+)|([A-Za-z]*))")
_SCALE: Final = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}


def count(quantity: str) -> int | None:
    """The whole number that `quantity` means; None where it means none ("1500m", or no quantity at all)."""
    match = _FORM.fullmatch(quantity.strip())
    if match is None or (match[3] or "") not in _SCALE:
        return None
    number = Decimal(match[1])
    scaled = number.scaleb(int(match[2])) if match[2] else number * _SCALE[match[3] or ""]
    return int(scaled) if scaled == scaled.to_integral_value() else None
