"""Keeps the status of each NodeDeviceConfig: kopf's handlers tell which ones there are, the poll of Leases what agents say of them.

Nothing here is kept but in memory. A write that fails is made again after the next poll. Only who leads writes, and posts Events.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec
from nodedevice_api import names
from nodedevice_api.names import ConfigReason

from nodedevice_operator.configs.status import ConfigStatus, Reports, config_status, read_reports, to_json
from nodedevice_operator.errors import ApiError, NotFound, NotLeading
from nodedevice_operator.kube.client import OWN, Requests, now_text, path_segment
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event
from nodedevice_operator.observability.recorder import EventRecorder

log = logging.getLogger(__name__)

# changes that come together, of a fleet that has just got a configuration, are one write
_TOGETHER_SECONDS: Final = 0.5


class ConfigsApi(Requests):
    async def probe(self) -> None:
        """Raises NotFound without the kind, Forbidden where it may not be listed, other ApiErrors."""
        path = f"{OWN}/{names.NODE_DEVICE_CONFIGS}"
        await self._client.request("GET", names.NODE_DEVICE_CONFIGS, path, query={"limit": 1})

    async def write_status(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Of just that object. Raises ApiError."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE_CONFIG,
            "metadata": {"name": name, "uid": uid},
            "status": status,
        }
        path = f"{OWN}/{names.NODE_DEVICE_CONFIGS}/{path_segment(name)}/status"
        await self._apply(f"{names.NODE_DEVICE_CONFIGS}/status", path, body, force=True)


@dataclass(slots=True)
class _Known:
    """status: as it is stored, as far as is known."""

    uid: str
    generation: int
    status: dict[str, Any]


@dataclass(eq=False)
class ConfigController:
    """work() for ever; the other methods say what has changed."""

    api: ConfigsApi
    fence: WriteFence
    recorder: EventRecorder
    _known: dict[str, _Known] = field(default_factory=dict, init=False)
    _by_node: dict[str, Reports] = field(default_factory=dict, init=False)
    _texts: dict[str, str] = field(default_factory=dict, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def seen(self, body: Mapping[str, Any]) -> None:
        """A configuration that is new or changed, or whose status is."""
        meta, status = body["metadata"], body.get("status")
        self._known[str(meta["name"])] = _Known(
            str(meta.get("uid", "")),
            int(meta.get("generation", 0)),
            dict(status) if isinstance(status, Mapping) else {},
        )
        self._changed.set()

    def gone(self, name: str) -> None:
        self._known.pop(name, None)
        self._changed.set()

    def all_gone(self) -> None:
        """Those that exist will be seen again."""
        self._known.clear()

    def leases_are(self, texts: Mapping[str, str]) -> None:
        """What each node's agent reports, where it reports anything."""
        if texts == self._texts:
            # also what could not be written
            self._changed.set()
            return
        # a fleet has few different ones
        read = {text: read_reports(text) for text in set(texts.values())}
        self._texts, self._by_node = dict(texts), {node: read[text] for node, text in texts.items()}
        self._changed.set()

    async def work(self) -> NoReturn:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)
            self._changed.clear()
            if self.fence.is_open:
                for name in sorted(self._known):
                    await self._reconcile(name)

    async def _reconcile(self, name: str) -> None:
        known = self._known.get(name)
        if known is None:
            return
        wanted = config_status(name, known.generation, self._by_node)
        status = to_json(wanted, known.status, now_text())
        if status == known.status:
            return
        try:
            await self.api.write_status(name, known.uid, status)
        except NotFound:
            # deleted while nothing watched
            self._known.pop(name, None)
            return
        except NotLeading:
            return
        except ApiError as error:
            log.warning("status of a configuration not written; retrying", extra={"config": name, "error": str(error)})
            return
        about = About(names.API_VERSION, names.NODE_DEVICE_CONFIG, "", name, known.uid)
        for event in _events(about, known.status, wanted):
            self.recorder.post(event)
        known.status = msgspec.json.decode(msgspec.json.encode(status))


_QUIET: Final = frozenset({ConfigReason.PENDING, ConfigReason.NO_NODES, ConfigReason.RESOURCE_WON})
_BAD: Final = frozenset({ConfigReason.REFUSED, ConfigReason.RESOURCE_TAKEN})


def _events(about: About, before: Mapping[str, Any], wanted: ConfigStatus) -> list[Event]:
    """Of conditions whose reason has changed, but for what is only on its way, or has always been so."""
    stored = {each.get("type"): each.get("reason") for each in before.get("conditions", ()) if isinstance(each, dict)}
    return [
        Event(about, WARNING if reason in _BAD else NORMAL, reason, message)
        for kind, (_, reason, message) in wanted.conditions.items()
        if reason not in _QUIET and stored.get(kind, ConfigReason.NO_OTHER) != reason
    ]
