"""PromQL for more than one panel, and the variables that each source supports.

The operator has two replicas that report the same fleet: `max` removes the duplicate before values are summed. Counters of its
own actions (writes, repairs) are summed directly, because only the leader acts.
"""

from typing import Final

CLUSTER: Final = 'cluster=~"$cluster"'
OF_RESOURCE: Final = f'{CLUSTER}, resource_name=~"$resource"'
# scraping adds `node` to the agents' series; the operator's series contain it
OF_NODE: Final = f'{CLUSTER}, node=~"$node"'
OF_BOTH: Final = f'{OF_RESOURCE}, node=~"$node"'


def once(metric: str, by: str = "", matchers: str = CLUSTER) -> str:
    """Query a metric of the operator, without duplicates from its replicas. by: labels to keep in addition to the cluster."""
    labels = f"cluster, {by}" if by else "cluster"
    return f"max by ({labels}) ({metric}{{{matchers}}})"


def devices(state: str, by: str = "") -> str:
    """Query the fleet's devices in a state. by: the label to keep, if any."""
    fleet = once("nodedevice_operator_devices", "resource_name, state", f'{OF_RESOURCE}, state="{state}"')
    return f"sum by ({by}) ({fleet})" if by else f"sum({fleet})"


def served(by: str) -> str:
    """Query all devices by their allocator. by: the labels to keep."""
    matchers = f'{OF_RESOURCE}, state="total"'
    fleet = once("nodedevice_operator_served_devices", "served_by, resource_name, state", matchers)
    return f"sum by ({by}) ({fleet})"


def unhealthy(by: str = "") -> str:
    return f"{devices('total', by)} - {devices('healthy', by)}"


def quantile(share: float, histogram: str, by: str = "", matchers: str = CLUSTER) -> str:
    """Query a quantile of a histogram over the interval, in its unit. by: further labels to keep, such as "method, "."""
    return f"histogram_quantile({share}, sum by ({by}le) (rate({histogram}_bucket{{{matchers}}}[$__rate_interval])))"


def rate(counter: str, by: str, matchers: str = CLUSTER) -> str:
    """Query a rate per second."""
    return f"sum by ({by}) (rate({counter}{{{matchers}}}[$__rate_interval]))"


def count_in_range(counter: str, by: str, matchers: str = CLUSTER) -> str:
    """Query an increase over the dashboard's whole time range."""
    return f"sum by ({by}) (increase({counter}{{{matchers}}}[$__range]))"
