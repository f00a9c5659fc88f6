"""Holds the cluster's state for the page. Threads that follow the API server write it, and threads of browsers wait for changes.

A browser requests everything once, and then the changes since a sequence number. It gets the current state of each changed object,
however often that changed, so that a slow browser costs no memory.
"""

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from nodedevice_kube.list_watch import SILENCE_SECONDS

from kubectl_nodedevice.attention import Need, of_pending, of_summaries, ordered
from kubectl_nodedevice.cluster import NodeDevice, Pod
from kubectl_nodedevice.grouping import grouped
from kubectl_nodedevice.page.squares import Square, square_of

# names of deleted objects that are kept for slow browsers; others load everything again
_MOST_GONE: Final = 10_000
# groups that the page shows; it says how many more there are
_MOST_NEEDS: Final = 50


@dataclass
class Source:
    """The state of one kind. problem: why it cannot be read now, with the remedy. is_forbidden: the person may not read it.

    as_of: when the last list or event came (Unix seconds); 0 before the first list. is_stale: the API server is silent.
    unread: objects of the last list that could not be decoded, or were too large.
    """

    problem: str = ""
    is_forbidden: bool = False
    as_of: float = 0.0
    is_stale: bool = False
    unread: str = ""


@dataclass
class Fleet:
    """epoch: changes with each start, so that a browser of an earlier one loads everything again."""

    epoch: str = field(default_factory=lambda: uuid4().hex[:12])
    sequence: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    _squares: dict[str, tuple[int, Square]] = field(default_factory=dict)
    _gone: dict[str, int] = field(default_factory=dict)
    _gone_before: int = 0
    _pods: dict[str, Pod] = field(default_factory=dict)
    _others: tuple[Need, ...] = ()
    _sources: dict[str, Source] = field(default_factory=dict)

    # -- written by what follows the API server --------------------------------------------------------------------------

    def put(self, found: NodeDevice) -> None:
        square = square_of(found, datetime.now(UTC))
        with self.changed:
            self._put(square)

    def _put(self, square: Square) -> None:
        known = self._squares.get(square.name)
        if known is not None and known[1].text == square.text and known[1].rest == square.rest:
            return
        self.sequence += 1
        # the newest is the last one
        self._squares.pop(square.name, None)
        self._squares[square.name] = (self.sequence, square)
        self._gone.pop(square.name, None)
        self.changed.notify_all()

    def remove(self, name: str) -> None:
        with self.changed:
            if self._squares.pop(name, None) is None:
                return
            self.sequence += 1
            self._gone[name] = self.sequence
            while len(self._gone) > _MOST_GONE:
                self._gone_before = self._gone.pop(next(iter(self._gone)))
            self.changed.notify_all()

    def names(self) -> set[str]:
        with self.changed:
            return set(self._squares)

    def put_pod(self, pod: Pod) -> None:
        self._set_pod(f"{pod.meta.namespace}/{pod.meta.name}", pod)

    def remove_pod(self, key: str) -> None:
        self._set_pod(key, None)

    def _set_pod(self, key: str, pod: Pod | None) -> None:
        with self.changed:
            if pod is None:
                self._pods.pop(key, None)
            else:
                self._pods[key] = pod
            self.changed.notify_all()

    def pods(self) -> set[str]:
        with self.changed:
            return set(self._pods)

    def set_others(self, needs: Iterable[Need]) -> None:
        """Needs of the operator and of NodeDeviceConfigs."""
        with self.changed:
            self._others = tuple(needs)
            self.changed.notify_all()

    def source(self, what: str, **values: Any) -> None:
        """Store these fields of the source of that name."""
        with self.changed:
            known = self._sources.setdefault(what, Source())
            for name, value in values.items():
                setattr(known, name, value)
            self.changed.notify_all()

    # -- read for browsers -------------------------------------------------------------------------------------------------

    def everything(self, about: Mapping[str, str], needs: str) -> str:
        """All that a browser shows at first, as JSON. about: of the cluster and the person. needs: JSON of groups()."""
        with self.changed:
            sequence, squares = self.sequence, [square.text for _, square in self._squares.values()]
        head = {"about": about, "epoch": self.epoch, "sequence": sequence, "isRead": self.is_read(), **self.sources()}
        return f'{encoded(head)[:-1]},"needs":{needs},"squares":[{",".join(squares)}]}}'

    def since(self, sequence: int) -> tuple[int, list[str], list[str]] | None:
        """The new sequence number, changed NodeDevices as JSON, and names of deleted ones; None if they are not known any more."""
        with self.changed:
            if sequence < self._gone_before or sequence > self.sequence:
                return None
            texts = []
            for at, square in reversed(self._squares.values()):
                if at <= sequence:
                    break
                texts.append(square.text)
            gone = [name for name, at in self._gone.items() if at > sequence]
            return self.sequence, texts, gone

    def wait(self, sequence: int, seconds: float) -> None:
        """Wait for a later sequence number than this."""
        with self.changed:
            self.changed.wait_for(lambda: self.sequence > sequence, seconds)

    def groups(self, now: datetime) -> str:
        """What needs attention, grouped by cause, the worst first, as JSON."""
        found = self.needs(now)
        return encoded({"groups": found[:_MOST_NEEDS], "more": max(len(found) - _MOST_NEEDS, 0)})

    def needs(self, now: datetime) -> list[dict[str, Any]]:
        """The same as objects, without a limit."""
        with self.changed:
            squares = [square for _, square in self._squares.values()]
            pods, others = [*self._pods.values()], self._others
        rests: Mapping[str, NodeDevice] = {each.name: each.rest for each in squares if each.rest is not None}
        found = [
            *others,
            *of_summaries([each.summary for each in squares if each.summary.needs_reading], rests, now),
            *(need for each in squares for need in each.needs(now)),
            *of_pending(pods, now),
        ]
        return [
            {"code": each.code, "text": each.text, "command": each.command, "about": dict(each.about)}
            for each in grouped(ordered(found), now)
        ]

    def sources(self) -> dict[str, Any]:
        """How current the page is: as JSON."""
        now = time.time()
        with self.changed:
            items = {
                what: {
                    "problem": each.problem,
                    "isForbidden": each.is_forbidden,
                    "asOf": each.as_of,
                    # a request without a response ends only at its time limit
                    "isStale": each.is_stale or 0 < each.as_of < now - SILENCE_SECONDS,
                    "unread": each.unread,
                }
                for what, each in self._sources.items()
            }
        return {"now": now, "sources": items}

    def is_read(self) -> bool:
        """Whether each kind has been listed, or cannot be."""
        with self.changed:
            return bool(self._sources) and all(each.as_of or each.problem for each in self._sources.values())


def encoded(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"))
