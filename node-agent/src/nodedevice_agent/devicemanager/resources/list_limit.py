"""How many devices all plugins of a node together may list: what exceeds it is refused whole, and the list before it stays."""

from collections.abc import Iterable

from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, REFUSED, ListedDevices
from nodedevice_agent.devicemanager.resources.resource import Resource

# A list of up to so many counts, but is not refused: others that list far more must not stop a plugin. For the most plugins that an
# agent accepts, half of the bound.
MAX_SMALL_LIST = 256


def within_limit(
    resources: Iterable[Resource], resource: Resource, endpoint: int, listed: ListedDevices
) -> ListedDevices:
    """The list, or REFUSED.

    resources: all of them. Never refuses a short list, nor one that is no longer than the one before it on this connection.
    """
    if listed.is_refused:
        return REFUSED
    count, others = len(listed.devices), [other for other in resources if other is not resource]
    if count <= max(MAX_SMALL_LIST, resource.count_of(endpoint)):
        return listed
    room = MAX_DEVICES - sum(other.kept_count() for other in others)
    if count > room - resource.kept_count(besides=endpoint):
        # a plugin that registers again must not need room for two lists
        resource.forget_older_lists(endpoint)
    return listed if count <= room - resource.kept_count(besides=endpoint) else REFUSED
