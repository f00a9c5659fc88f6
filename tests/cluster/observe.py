"""Records when a change became visible in the API: a watch in a thread, with the time of each event."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.cluster.api import NO_ANSWER, Node, NodeDevice, NodeDeviceConfig, Pod, open_client


@dataclass(frozen=True)
class Seen:
    """at: time.monotonic() when the event arrived. kind: ADDED, MODIFIED or DELETED."""

    at: float
    kind: str
    object: Any


class Observer:
    """Watches one kind, all objects; wait() finds the first event since a moment that is as asked."""

    def __init__(self, kubeconfig: Path, kind: Any) -> None:
        self._client = open_client(kubeconfig)
        self._kind = kind
        self._seen: list[Seen] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name=f"observe-{kind.__name__}", daemon=True)

    @classmethod
    def nodes(cls, kubeconfig: Path) -> Self:
        return cls(kubeconfig, Node)

    @classmethod
    def pods(cls, kubeconfig: Path) -> Self:
        return cls(kubeconfig, Pod)

    @classmethod
    def node_devices(cls, kubeconfig: Path) -> Self:
        return cls(kubeconfig, NodeDevice)

    @classmethod
    def configs(cls, kubeconfig: Path) -> Self:
        return cls(kubeconfig, NodeDeviceConfig)

    def wait(self, is_it: Callable[[Seen], bool], since: float, timeout_seconds: float = 60.0) -> Seen:
        """The first event that arrived after `since` and is it. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            checked = 0
            while True:
                for seen in self._seen[checked:]:
                    if seen.at >= since and is_it(seen):
                        return seen
                checked = len(self._seen)
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError(f"no such event of {self._kind.__name__} within {timeout_seconds:.0f} s")

    def seen(self) -> list[Seen]:
        """All events so far."""
        with self._changed:
            return list(self._seen)

    def forget(self) -> None:
        """Drop all earlier events."""
        with self._changed:
            self._seen.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def _watch(self) -> None:
        namespace: dict[str, Any] = {"namespace": "*"} if self._kind is Pod else {}
        try:
            for event, found in self._client.watch(self._kind, **namespace):
                with self._changed:
                    self._seen.append(Seen(time.monotonic(), event, found))
                    self._changed.notify_all()
        except (*NO_ANSWER, RuntimeError):
            # closed with the observer, or the API server ended: waiting callers time out
            return


def capacity(seen: Seen, node_name: str, resource_name: str) -> int | None:
    """A resource's capacity in a Node event; None for another node or without it."""
    node = seen.object
    if node.metadata.name != node_name or node.status is None:
        return None
    value = (node.status.capacity or {}).get(resource_name)
    return int(value) if value is not None else None
