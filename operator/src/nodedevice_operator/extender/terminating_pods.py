"""Pods that end, or have ended: their parts are free soon. kube-scheduler does not watch NodeDevices, so it does not learn when."""

from collections import deque
from collections.abc import Iterator
from typing import Final

# The time that a pod usually has for its end, and its agent for showing it.
LEAVING_SECONDS: Final = 60.0


class Leaving:
    """The pods of each node, for a while. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, float]] = {}
        self._due: deque[tuple[float, str, str]] = deque()

    def add(self, uid: str, node: str, now: float) -> None:
        self._since.setdefault(node, {})[uid] = now
        self._due.append((now + LEAVING_SECONDS, node, uid))

    def on(self, node: str) -> frozenset[str]:
        return frozenset(self._since.get(node, ()))

    def nodes(self) -> Iterator[str]:
        return iter(self._since)

    def expire(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            due, node, uid = self._due.popleft()
            on_node = self._since.get(node, {})
            # added again since: it has another due time
            if uid in on_node and on_node[uid] + LEAVING_SECONDS <= due:
                del on_node[uid]
                if not on_node:
                    del self._since[node]
