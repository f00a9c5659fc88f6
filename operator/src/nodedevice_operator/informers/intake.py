"""What a watch says of one object: into the cache as a slim record, whose handlers are called.

Knows no watch: an object comes in its wire form, with whether that was its end. What the cache knew already, or knows newer, is
no news to anybody. A Node that is not understood is told once, and left alone until it is.
"""

from typing import Any

from nodedevice_operator.informers.store import Cache, R, Store
from nodedevice_operator.kube.decode import VALUE_ERRORS, tell_not_understood
from nodedevice_operator.objects.node import Node, node_record
from nodedevice_operator.objects.nodedevice import NodeDevice, node_device_record
from nodedevice_operator.objects.poddevice import PodDevice, pod_device_record


class Intake:
    """Takes in objects of the three kinds."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def node(self, form: Node) -> None:
        try:
            record = node_record(form)
        except VALUE_ERRORS as exc:
            self.odd_node(form.metadata.name, exc)
            return
        self._cache.nodes.update(record)

    def odd_node(self, name: str, problem: Exception) -> None:
        """There is a Node of that name, and it is not understood."""
        if self._cache.nodes.leave_alone(name):
            tell_not_understood("Node", name, problem)

    def end_of_node(self, name: str, uid: str) -> None:
        self._cache.nodes.delete(name, uid, name)

    def node_device(self, form: NodeDevice, *, is_end: bool) -> None:
        _take(self._cache.node_devices, node_device_record(form), is_end=is_end)

    def pod_device(self, form: PodDevice, *, is_end: bool) -> None:
        _take(self._cache.pod_devices, pod_device_record(form), is_end=is_end)


def _take(store: Store[Any, R], record: R, *, is_end: bool) -> None:
    if is_end:
        store.delete(record.key, record.uid, record.node)
    else:
        store.update(record)
