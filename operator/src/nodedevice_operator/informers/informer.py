"""Our own watch of the kinds that are many: each listed whole in pages, then followed from that list's version.

No object is ever held as JSON: a line of the watch is decoded into the few fields that are needed, and becomes a record. What is
gone since the last list is found by the next one, so nothing is lost whatever happened in between. Writes nothing.
"""

import logging
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import ApiError, NotUnderstood, Unavailable
from nodedevice_operator.informers.intake import Intake
from nodedevice_operator.informers.pauses import Pauses
from nodedevice_operator.informers.relist import Sync
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import item, understood
from nodedevice_operator.objects.meta import Versioned, WatchEvent
from nodedevice_operator.objects.nodedevice import NodeDevice
from nodedevice_operator.objects.poddevice import PodDevice

log = logging.getLogger(__name__)

_BUSY: Final = 429
# the version is too old, or the kind itself went away, with all objects
_NOT_FROM_HERE: Final = frozenset({404, 410})


class _Take(Protocol):
    def __call__(self, line: msgspec.Raw, *, is_end: bool) -> None: ...


class _ListAnew(Exception):
    """The API server cannot go on from the version that we know."""


@dataclass(slots=True)
class _Place:
    """Up to which version everything is known (None: a list is due), and how long the next pause is."""

    version: int | None = None
    pauses: Pauses = field(default_factory=Pauses)


class RecordWatch:
    """NodeDevices and PodDevices, one task each."""

    def __init__(self, sync: Sync, intake: Intake, client: Client) -> None:
        self._sync = sync
        self._intake = intake
        self._client = client
        self._takes: Mapping[str, _Take] = {
            names.NODE_DEVICES: self._take_node_device,
            names.POD_DEVICES: self._take_pod_device,
        }

    async def work(self, kind: str) -> None:
        """List that kind (its plural) and follow it, for ever."""
        place = _Place()
        while True:
            if place.version is None:
                place.version = await self._sync.list_whole(kind)
            try:
                if not await self._follow(kind, place.version, place):
                    await place.pauses.pause()
            except _ListAnew:
                log.info("watch begins anew with a list", extra={"kind": kind})
                place.version = None
                await place.pauses.pause()
            except NotUnderstood as error:
                # the same line again would be no better
                log.warning("watch brings what is not understood", extra={"kind": kind, "problem": error.problem})
                place.version = None
                await place.pauses.pause()
            except ApiError as error:
                if error.status in _NOT_FROM_HERE:
                    place.version = None
                log.debug("watch cannot be had", extra={"kind": kind, "problem": error.problem})
                await place.pauses.pause(_asked_for(error))

    async def _follow(self, kind: str, version: int, place: _Place) -> bool:
        """One watch from that version on, until the API server ends it; whether it brought anything.

        Raises ApiError or _ListAnew.
        """
        has_brought = False
        query = {"resourceVersion": str(version)}
        async with aclosing(self._client.watch(kind, f"/apis/{names.API_VERSION}/{kind}", query)) as lines:
            async for line in lines:
                self._take(kind, line, place)
                place.pauses.over()
                has_brought = True
        return has_brought

    def _take(self, kind: str, line: bytes, place: _Place) -> None:
        """Raises NotUnderstood, or _ListAnew."""
        event = understood("watch", kind, line, WatchEvent)
        if event.type == "ERROR":
            # its version is too old, or something that another try from there would not change
            raise _ListAnew
        version = understood("watch", kind, event.object, Versioned).metadata.resource_version
        if not version.isdecimal():
            raise NotUnderstood("watch", kind, f"an object has the resource version {version!r}")
        if event.type != "BOOKMARK":
            self._takes[kind](event.object, is_end=event.type == "DELETED")
        place.version = int(version)

    def _take_node_device(self, line: msgspec.Raw, *, is_end: bool) -> None:
        form = item(names.NODE_DEVICE, line, NodeDevice)
        if form is not None:
            self._intake.node_device(form, is_end=is_end)

    def _take_pod_device(self, line: msgspec.Raw, *, is_end: bool) -> None:
        form = item(names.POD_DEVICE, line, PodDevice)
        if form is not None:
            self._intake.pod_device(form, is_end=is_end)


def _asked_for(error: ApiError) -> float:
    """Seconds that one which is busy asks for. One that starts asks for five, of all, and serves a moment later."""
    if isinstance(error, Unavailable) and error.status == _BUSY:
        return error.retry_after_seconds or 0.0
    return 0.0
