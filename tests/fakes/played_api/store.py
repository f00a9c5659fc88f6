"""The objects of a played API server, and what has happened to them."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.fakes.played_api.kinds import USUAL, Selector
from tests.fakes.played_api.messages import Object, encode


class Made(NamedTuple):
    """An object that is made each time it is sent: many large ones take no memory. Made as octets, it is selected by its name."""

    namespace: str
    name: str
    make: Callable[[], bytes | Object]


Stored = Object | Made


@dataclass(frozen=True)
class Event:
    """A change at this version. before, after: the object; None if it does not exist. line: sent as it is instead."""

    version: int
    kind: str
    before: Stored | None
    after: Stored | None
    line: bytes = b""

    def shown(self, namespace: str, selector: Selector) -> bytes:
        """Its line in a watch; empty if it does not concern the watch's objects."""
        if self.line:
            return self.line
        was, is_now = (each is not None and has(namespace, selector, each) for each in (self.before, self.after))
        # what leaves the selection is shown as it was
        shown = self.after if is_now else self.before
        if shown is None or not (was or is_now):
            return b""
        if isinstance(shown, dict):
            shown = {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(self.version)}}
        return line("DELETED" if not is_now else "MODIFIED" if was else "ADDED", octets_of(shown))


class Store:
    """objects: by the path of their kind in all namespaces; a kind without an entry is not served.

    Tests change objects directly where no watch needs to see it.
    """

    def __init__(self, objects: Mapping[str, list[Any]] | None = None) -> None:
        self.objects: dict[str, list[Any]] = {kind: [] for kind in USUAL} if objects is None else dict(objects)
        # larger than any version that a test writes into an object
        self.version = 1_000
        # the version before which everything is forgotten, and how often watches were cut
        self.oldest = self.cuts = 0
        self.events: list[Event] = []
        # held for each request, and notified of each event
        self.changed = threading.Condition(threading.RLock())

    def serve(self, *kinds: str) -> None:
        for kind in kinds:
            self.objects.setdefault(kind, [])

    def put(self, kind: str, content: Stored) -> None:
        """Create or replace an object, as another client would."""
        with self.changed:
            if isinstance(content, dict):
                content = {**content, "metadata": {"uid": f"uid-{self.version}", **content["metadata"]}}
            self.store(kind, content)

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        with self.changed:
            before = self.stored(kind, namespace, name)
            assert before is not None
            self.objects[kind].remove(before)
            self._happened(kind, before, None)

    def send(self, kind: str, text: bytes) -> None:
        """Send a line in each open watch of the kind."""
        with self.changed:
            self._happened(kind, None, None, text)

    def forget(self) -> None:
        """Compact: earlier versions can neither be watched from nor listed."""
        with self.changed:
            self.oldest = self.version

    def cut_watches(self) -> None:
        """Break the connections of open watches."""
        with self.changed:
            self.cuts += 1
            self.changed.notify_all()

    def stored(self, kind: str, namespace: str, name: str) -> Stored | None:
        found = self.objects.get(kind, ())
        return next((each for each in found if key_of(each)[1] == name and is_in(namespace, each)), None)

    def store(self, kind: str, content: Stored) -> Stored:
        """Under the next version."""
        if isinstance(content, dict):
            content = {**content, "metadata": {**content["metadata"], "resourceVersion": str(self.version + 1)}}
        stored, key = self.objects.setdefault(kind, []), key_of(content)
        index = next((index for index, each in enumerate(stored) if key_of(each) == key), len(stored))
        before = stored[index] if index < len(stored) else None
        stored[index : index + 1] = [content]
        self._happened(kind, before, content)
        return content

    def _happened(self, kind: str, before: Stored | None, after: Stored | None, text: bytes = b"") -> None:
        self.version += 1
        self.events.append(Event(self.version, kind, before, after, text))
        self.changed.notify_all()


def key_of(each: Stored) -> tuple[str, str]:
    """Namespace and name."""
    if isinstance(each, Made):
        return each.namespace, each.name
    return each["metadata"].get("namespace", ""), each["metadata"]["name"]


def is_in(namespace: str, each: Stored) -> bool:
    """namespace: "" has all objects."""
    return namespace in ("", key_of(each)[0])


def has(namespace: str, selector: Selector, each: Stored) -> bool:
    """Whether a list or watch of the namespace has the object."""
    if not is_in(namespace, each) or not selector.has_name(key_of(each)[1]):
        return False
    content = each.make() if isinstance(each, Made) else each
    return isinstance(content, bytes) or selector.has(content)


def content_of(each: Stored) -> Object:
    content = each.make() if isinstance(each, Made) else each
    found: Object = json.loads(content) if isinstance(content, bytes) else content
    return found


def octets_of(each: Stored) -> bytes:
    content = each.make() if isinstance(each, Made) else each
    return content if isinstance(content, bytes) else encode(content)


def line(event: str, octets: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), octets)
