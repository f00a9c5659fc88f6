"""Lists and watches one kind for as long as the agent runs, and hands what changed to a handler."""

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from nodedevice_agent.kube.client import KubeClient, forever

T = TypeVar("T", bound=Any)
T_contra = TypeVar("T_contra", contravariant=True)


class EventHandler(Protocol[T_contra]):
    def synced(self, objects: list[Any]) -> None:
        """The complete list: first of all, and again after each break of the watch."""

    def updated(self, found: T_contra) -> None:
        """An object that was added or modified."""

    def deleted(self, found: T_contra) -> None:
        """An object that is gone, as it was last."""


class ObjectInformer(Generic[T]):
    """run() until cancelled. fields: the field selector, such as the name of the Node."""

    def __init__(self, cluster: KubeClient, kind: type[T], fields: Mapping[str, str], handler: EventHandler[T]) -> None:
        self._cluster = cluster
        self._kind = kind
        self._fields = fields
        self._handler = handler

    async def run(self) -> None:
        await forever(self.list_and_watch)

    async def list_and_watch(self) -> None:
        """Until the watch ends (returns) or breaks (raises ApiRequestError)."""
        objects, version = await self._cluster.list(self._kind, self._fields)
        self._handler.synced(objects)
        async for event, found in self._cluster.watch(self._kind, self._fields, version):
            if event == "DELETED":
                self._handler.deleted(found)
            else:
                self._handler.updated(found)
