"""Limits the Allocate responses that a node keeps in memory and in its checkpoint, per domain and in total.

Each response is kept as long as its pod exists, and read at each start. One above the limit is refused as a failure of its plugin.
"""

from collections.abc import Mapping
from typing import Final

from nodedevice_api.extended_resources import domain_of

# In memory, decoded: some 3,000 containers with twenty variables, mounts and device files each. An agent has 384 MiB in the chart.
MAX_OCTETS: Final = 16 * 1024 * 1024
# The room that the plugins of one domain leave to others.
MAX_OCTETS_OF_DOMAIN: Final = 14 * 1024 * 1024


def answer_problem(resource_name: str, octets: int, kept: Mapping[str, int]) -> str:
    """Why one more response of that size is refused; "" if it is accepted. kept: octets by domain."""
    domain = domain_of(resource_name)
    if kept.get(domain, 0) + octets > MAX_OCTETS_OF_DOMAIN:
        whose, most = f"plugins of {domain}", MAX_OCTETS_OF_DOMAIN
    elif sum(kept.values()) + octets > MAX_OCTETS:
        whose, most = "device plugins", MAX_OCTETS
    else:
        return ""
    remedy = "delete pods that hold devices, or let the plugin respond with less, such as the name of a CDI device"
    return f"the responses of {whose} take {most // 1024 // 1024} MiB on this node, which is the limit: {remedy}"
