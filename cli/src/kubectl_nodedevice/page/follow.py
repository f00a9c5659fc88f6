"""Follows one kind at the API server by a list and a watch, in a thread of its own, and writes it into the fleet."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_kube.api_errors import ApiError, Forbidden, Gone, Silent
from nodedevice_kube.fields import Json, map_of, text_of
from nodedevice_kube.list_watch import ListWatch, Policy, Request

from kubectl_nodedevice.api import Api
from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.page.fleet import Fleet

# a bookmark comes each minute: a watch that brought nothing for longer is silent
WATCH_SECONDS: Final = 75
API_SECONDS: Final = 90.0
_POLICY: Final = Policy(1.0, 30.0, 30.0)


@dataclass(frozen=True, slots=True)
class Kind:
    """what: its name for people. put: takes an object. remove: takes its key. keys: of all known objects; key: of one."""

    what: str
    path: str
    put: Callable[[Json], object]
    remove: Callable[[str], object]
    keys: Callable[[], set[str]]
    key: Callable[[Json], str]
    query: Mapping[str, str]


class Follower(threading.Thread):
    """Runs until the process ends."""

    def __init__(self, api: Api, kind: Kind, fleet: Fleet) -> None:
        super().__init__(name=f"follows {kind.what}", daemon=True)
        self._api, self._kind, self._fleet = api, kind, fleet
        self._state = ListWatch(_POLICY, time.monotonic())
        self._unread: list[str] = []
        api.warn = self._unread.append

    def run(self) -> None:
        while True:
            self.step()
            time.sleep(self._state.pause_seconds(random.random()))

    def step(self) -> None:
        """Send the due request, and note how it ended."""
        state = self._state
        request = state.next(time.monotonic())
        try:
            if request is Request.LIST:
                state.listed(self._list(), time.monotonic())
            elif request is Request.CHECK:
                state.checked(self._api.version(self._kind.what, self._kind.path, self._kind.query), time.monotonic())
            else:
                self._watch()
                state.ended(time.monotonic())
        except CliError as exc:
            # a login that may work later: an exec plugin, a certificate that is replaced
            self._failed(ApiError("GET", self._kind.what, exc.problem, remedy=exc.remedy))
        except ApiError as exc:
            self._failed(_silent(exc) if request is Request.WATCH else exc)
        else:
            self._came()
        self._note_silence()

    def _note_silence(self) -> None:
        self._fleet.source(self._kind.what, is_stale=self._state.is_stale(time.monotonic()))

    def _failed(self, error: ApiError) -> None:
        self._state.failed(error, time.monotonic())
        if isinstance(error, Silent | Gone):
            return
        remedy = f"; {error.remedy}" if error.remedy else ""
        self._fleet.source(
            self._kind.what, problem=f"{error.problem}{remedy}", is_forbidden=isinstance(error, Forbidden)
        )

    def _came(self) -> None:
        self._fleet.source(self._kind.what, problem="", is_forbidden=False, as_of=time.time())

    def _list(self) -> str:
        kind, missing = self._kind, self._kind.keys()

        def take(obj: Json) -> None:
            missing.discard(kind.key(obj))
            kind.put(obj)

        self._unread.clear()
        version = self._api.listed(kind.what, kind.path, kind.query, take)
        self._fleet.source(kind.what, unread="; ".join(self._unread))
        for key in missing:
            kind.remove(key)
        return version

    def _watch(self) -> None:
        kind, state = self._kind, self._state
        query = {**kind.query, "resourceVersion": state.version, "timeoutSeconds": str(WATCH_SECONDS)}
        state.opened(time.monotonic())
        self._note_silence()
        self._api.watch(kind.what, kind.path, query, self._event)

    def _event(self, event: Json) -> None:
        """Raises Gone when a list is due."""
        kind, obj, of = self._kind, map_of(event, "object"), text_of(event, "type")
        if of == "ERROR":
            raise Gone("GET", kind.what, "the API server cannot continue the watch", 410)
        if of == "DELETED":
            kind.remove(kind.key(obj))
        elif of in ("ADDED", "MODIFIED"):
            kind.put(obj)
        self._state.heard(text_of(obj, "metadata", "resourceVersion"), time.monotonic())
        self._came()
        self._note_silence()


def _silent(error: ApiError) -> ApiError:
    """A watch without an end in its time brought nothing, not even a bookmark."""
    is_late = isinstance(error.__cause__, TimeoutError)
    return Silent(error.verb, error.what, error.problem) if is_late else error
