"""Who holds how many devices on this node, as Prometheus asks for it: by pod and container.

What was said of a resource last stands until the next is said, so a pod that is gone is gone from here too: gauges with labels
would have to be taken away one by one.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from nodedevice_agent.devicemanager.snapshot import Snapshot

# Containers of a resource. A kubelet runs 110 pods by default; past this the numbers are whole and the names are cut.
MOST_CONTAINERS: Final = 1000

# namespace, pod, container, resource name
_Holder = tuple[str, str, str, str]


class AllocationCollector:
    """Told a snapshot of each resource when it changes; asked by the registry at every scrape, from another thread."""

    def __init__(self) -> None:
        self._held: dict[str, dict[_Holder, int]] = {}

    def say(self, now: Snapshot) -> None:
        """What holds of this resource from now on. Pods that are over are left out, as nobody counts them."""
        held: dict[_Holder, int] = {}
        for one in now.held[:MOST_CONTAINERS]:
            if one.releasing:
                continue
            # of a pod that the API forgot only the uid is left
            namespace, name = (one.pod.namespace, one.pod.name) if one.pod is not None else ("", one.allocation.pod_uid)
            key = (namespace, name, one.allocation.container, now.resource_name)
            held[key] = held.get(key, 0) + len(one.allocation.device_ids)
        # replaced whole, never changed: the other thread may be reading it
        self._held = {**self._held, now.resource_name: held}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "nodedevice_agent_allocated_devices",
            "Devices that containers of this node hold.",
            labels=("namespace", "pod", "container", "resource_name"),
        )
        for held in self._held.values():
            for labels, count in held.items():
                family.add_metric(labels, count)
        yield family
