"""What a watch says of one object: into the cache as a slim record, and to whom it matters.

Knows no watch: an object comes in its wire form, with whether that was its end. What the cache knew already, or knows newer, is
no news to anybody. A Node that is not understood is told once, and left alone until it is.
"""

from collections.abc import Callable

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.decode import VALUE_ERRORS, tell_not_understood
from nodedevice_operator.objects.node import Node, node_record
from nodedevice_operator.objects.nodedevice import NodeDevice, NodeDeviceRecord, node_device_record
from nodedevice_operator.objects.poddevice import PodDevice, pod_device_record

# Called when a NodeDevice has changed: with what was known before, and what is now.
OnNews = Callable[[NodeDeviceRecord | None, NodeDeviceRecord], None]


class Intake:
    """Takes in objects of the three kinds."""

    def __init__(self, cache: Cache, touch: Callable[[str], None], on_news: OnNews) -> None:
        self._cache = cache
        self._touch = touch
        self._on_news = on_news

    def node(self, form: Node) -> None:
        try:
            record = node_record(form)
        except VALUE_ERRORS as exc:
            self.odd_node(form.metadata.name, exc)
            return
        if self._cache.nodes.put(record):
            self._touch(record.name)

    def odd_node(self, name: str, problem: Exception) -> None:
        """There is a Node of that name, and it is not understood."""
        if self._cache.nodes.leave_alone(name):
            tell_not_understood("Node", name, problem)

    def end_of_node(self, name: str, uid: str) -> None:
        if self._cache.nodes.remove(name, uid):
            self._touch(name)

    def node_device(self, form: NodeDevice, *, is_end: bool) -> None:
        record = node_device_record(form)
        store = self._cache.node_devices
        before = store.get(record.key)
        if is_end:
            if store.remove(record.key, record.uid):
                self._touch(record.node)
        elif store.put(record):
            self._on_news(before, record)

    def pod_device(self, form: PodDevice, *, is_end: bool) -> None:
        record = pod_device_record(form)
        store = self._cache.pod_devices
        before = store.get(record.key)
        if store.remove(record.key, record.uid) if is_end else store.put(record):
            self._touch(record.node)
            # its node is part of its identity, but the object may be another one with the same name
            if before is not None and before.node != record.node:
                self._touch(before.node)
