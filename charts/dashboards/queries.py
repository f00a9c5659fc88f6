"""PromQL that more than one panel asks, and which of the variables each source knows.

The operator runs twice and both count the same fleet: what it reports of the cluster is taken once, by `max`, before it is
summed. What it did itself (writes, repairs) is summed, as only the one that leads does anything.
"""

from typing import Final

CLUSTER: Final = 'cluster=~"$cluster"'
OF_RESOURCE: Final = f'{CLUSTER}, resource_name=~"$resource"'
# the agents' series get `node` when they are scraped, the operator's name it themselves
OF_NODE: Final = f'{CLUSTER}, node=~"$node"'
OF_BOTH: Final = f'{OF_RESOURCE}, node=~"$node"'


def once(metric: str, by: str = "", matchers: str = CLUSTER) -> str:
    """A metric that every replica of the operator reports alike, counted once. by: the labels to keep, besides the cluster."""
    labels = f"cluster, {by}" if by else "cluster"
    return f"max by ({labels}) ({metric}{{{matchers}}})"


def devices(state: str, by: str = "") -> str:
    """Devices of the fleet in that state. by: the label to keep, if any."""
    fleet = once("nodedevice_operator_devices", "resource_name, state", f'{OF_RESOURCE}, state="{state}"')
    return f"sum by ({by}) ({fleet})" if by else f"sum({fleet})"


def served(by: str) -> str:
    """All devices by who gives them out. by: the labels to keep."""
    matchers = f'{OF_RESOURCE}, state="total"'
    fleet = once("nodedevice_operator_served_devices", "served_by, resource_name, state", matchers)
    return f"sum by ({by}) ({fleet})"


def unhealthy(by: str = "") -> str:
    return f"{devices('total', by)} - {devices('healthy', by)}"


def quantile(share: float, histogram: str, by: str = "", matchers: str = CLUSTER) -> str:
    """Of what was observed in the interval, in the histogram's unit. by: further labels to keep, such as "method, "."""
    return f"histogram_quantile({share}, sum by ({by}le) (rate({histogram}_bucket{{{matchers}}}[$__rate_interval])))"


def rate(counter: str, by: str, matchers: str = CLUSTER) -> str:
    """Per second."""
    return f"sum by ({by}) (rate({counter}{{{matchers}}}[$__rate_interval]))"


def count_in_range(counter: str, by: str, matchers: str = CLUSTER) -> str:
    """Over the dashboard's whole time range."""
    return f"sum by ({by}) (increase({counter}{{{matchers}}}[$__range]))"
