"""Decides how resource names share a bounded number of places: fairly among domains. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from nodedevice_api.extended_resources import domain_of

# at least so long is between two names that lose their place to another
EXCHANGE_SECONDS: Final = 60.0


def spare(name: str, taken: Mapping[str, bool]) -> str:
    """Return the newest unneeded name of the largest domain; "" if its domain would keep fewer names than the new one's.

    taken: by name, the newest last, whether it is needed.
    """
    counts = Counter(map(domain_of, taken))
    own = counts[domain_of(name)]
    least = own + 2 if own else 1
    unneeded = [other for other in reversed([*taken]) if not taken[other] and counts[domain_of(other)] >= least]
    return max(unneeded, key=lambda other: counts[domain_of(other)], default="")
