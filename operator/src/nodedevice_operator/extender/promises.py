"""Parts that pods are promised: by a bind that is under way, or by one that the API has."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from nodedevice_api.assigned_parts import Assigned
from nodedevice_kube.planner import at_once

from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds
from nodedevice_operator.objects.meta import shared

# The agent may have given parts to a pod that is gone; its next status shows it.
GONE_SECONDS: Final = 10.0


@dataclass(slots=True)
class Promise:
    """made: the promised parts. pod: None while no watch has shown it. listed: resources whose status has listed the pod."""

    uid: str
    node: str
    needs: PodNeeds
    made: Assigned
    pod: BoundPod | None = None
    is_confirmed: bool = False
    is_gone: bool = False
    listed: tuple[str, ...] = ()

    @property
    def assigned(self) -> Assigned:
        """By resource, container and parent; the API's version wins."""
        return self.made if self.pod is None else self.pod.assigned

    @property
    def is_unresolved(self) -> bool:
        return self.pod is None and not self.is_confirmed and not self.is_gone

    @property
    def is_counted(self) -> bool:
        """Whether statuses count all of it."""
        return len(self.listed) >= len(self.needs.of)

    def is_as_known(self, pod: BoundPod) -> bool:
        """Whether the pod in the API has the promised node and parts, so that its node's free parts do not change."""
        if self.is_gone or self.node != pod.node or self.needs != pod.needs:
            return False
        if self.pod is None:
            return not pod.static_uid and self.made == pod.assigned
        return self.pod.parts == pod.parts


# one object for all pods
_shared: Callable[[tuple[str, ...]], tuple[str, ...]] = shared(lambda resources: resources)


class Promises:
    """Promises by pod UID. A promise is open on its node until statuses count all its resources."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Promise] = {}
        self._open: dict[str, dict[str, None]] = {}
        self._gone: deque[tuple[float, str]] = deque()

    def open_on(self, node: str) -> Iterator[Promise]:
        return (self.by_uid[uid] for uid in self._open.get(node, ()))

    def put(self, promise: Promise) -> None:
        self.by_uid[promise.uid] = promise
        if not promise.is_counted:
            self._open.setdefault(promise.node, {})[promise.uid] = None

    def remove(self, uid: str) -> Promise | None:
        found = self.by_uid.pop(uid, None)
        if found is not None:
            self._close(found)
        return found

    def listed(self, uid: str, node: str, resource: str) -> None:
        """Notes that a status of that node lists the pod, and so counts it."""
        found = self.by_uid.get(uid)
        if found is None or found.node != node or resource in found.listed:
            return
        found.listed = _shared((*found.listed, resource))
        if found.is_counted:
            self._close(found)
            if found.is_gone:
                del self.by_uid[uid]

    def gone(self, uid: str, now: float) -> Promise | None:
        """Notes that its pod is gone. Keeps the promise for a while if no status has listed the pod."""
        found = self.by_uid.get(uid)
        if found is None or found.is_gone:
            return None
        if found.is_counted:
            return self.remove(uid)
        found.is_gone = True
        self._gone.append((now + GONE_SECONDS, uid))
        return found

    def expired(self, now: float) -> list[Promise]:
        """Removes promises of pods that have been gone for long enough."""
        found = []
        while self._gone and self._gone[0][0] <= now:
            uid = self._gone.popleft()[1]
            promise = self.by_uid.get(uid)
            if promise is not None and promise.is_gone:
                found.append(promise)
                self.remove(uid)
        return found

    def units(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node in list(self._open):
            for uid in list(self._open.get(node, ())):
                promise = self.by_uid.get(uid)
                for resource, containers in promise.needs.of if promise is not None else ():
                    if promise is not None and resource not in promise.listed:
                        found[resource] = found.get(resource, 0) + at_once(containers)
        return found

    def _close(self, promise: Promise) -> None:
        on_node = self._open.get(promise.node, {})
        on_node.pop(promise.uid, None)
        if not on_node:
            self._open.pop(promise.node, None)
