"""A node whose slices and holders a test gives it, in seconds of a clock of its own; and what is shown of its pools."""

from collections.abc import Collection
from typing import Any, Final, Self

from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.served import ServedByDrivers
from nodedevice_api.names import Condition
from nodedevice_api.nodedevice import ConditionStatus, NodeDeviceStatus

from tests.unit.node_agent.dra.published import NAME, NODE, FakeHeld, a_slice
from tests.unit.node_agent.kube.shown_status import MONDAY

SEEN: Final = NodeDeviceStatus(total=0)


class Node:
    """Of the clock's second `now`. taken: names that others give out here."""

    def __init__(self, known: dict[PoolKey, str] | None = None) -> None:
        self.held, self.now = FakeHeld(), 100.0
        self.taken: set[str] = set()
        self.served = ServedByDrivers(NODE, self.held, lambda name: name in self.taken, known or {})

    @classmethod
    def with_pool(cls, known: dict[PoolKey, str] | None = None, **more: Any) -> Self:
        """Of one slice, s, that has one device, a."""
        found = cls(known)
        found.put("s", ["a"], **more)
        found.begin("s")
        return found

    def put(self, name: str, devices: Collection[str] = (), **more: Any) -> set[str]:
        return self.served.put(a_slice(name, devices, **more), self.now)

    def begin(self, *slice_names: str) -> set[str]:
        return self.served.synced(slice_names, self.now)

    def passes(self, seconds: float) -> set[str]:
        self.now += seconds
        return self.served.tick(self.now)

    def status(self, name: str = NAME, observed: NodeDeviceStatus = SEEN) -> NodeDeviceStatus | None:
        make = self.served.status_maker(name, observed, MONDAY, self.now, is_watch_stale=False)
        return None if make is None else make.made()

    def shown(self, name: str = NAME) -> NodeDeviceStatus:
        found = self.status(name)
        assert found is not None
        return found

    def state(self, name: str = NAME) -> str:
        endpoint = self.shown(name).endpoint
        assert endpoint is not None
        return endpoint.state

    def registered(self, name: str = NAME) -> ConditionStatus:
        return next(each for each in self.shown(name).conditions if each.type == Condition.REGISTERED)

    def reason(self, name: str = NAME) -> str:
        return self.registered(name).reason
