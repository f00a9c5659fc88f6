"""NodeDevices of resources that the kubelet or DRA drivers allocate here: the interface of a source, and the kubelet's source.

The agent only shows them. A name that a plugin serves here belongs to the agent, even if a source has it. A name that moves
from one source to another keeps its object.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from nodedevice_api import names
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus, NodeDeviceStatus

from nodedevice_agent import __version__, metrics
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.kube.status import node_device_status

# named or held devices: a status with more is made in a thread
MOST_IN_LOOP: Final = 256
_SERVED = "True", Reason.SERVED_BY_KUBELET, "the kubelet's device manager serves this resource; it is only shown here"
_INJECTABLE = "True", Reason.SERVED_BY_KUBELET, "the kubelet gives the devices to containers"
_NO_CORDON = (
    "True",
    Reason.CORDON_NOT_POSSIBLE,
    "spec.cordonedDevices has no effect: the kubelet serves this resource and allocates its devices; remove the cordons and drain "
    "the node, or have the device plugin register with the agent",
)


class StatusMaker(NamedTuple):
    """made(): makes a status from data of its own only; is_long: call it in a thread."""

    made: Callable[[], NodeDeviceStatus]
    is_long: bool


class Source(Protocol):
    """Another allocator of devices on this node. watch: the name of the watch that it needs; "" if it needs none.

    resources: by name, the oldest first. has: whether this source provides the status of that name. remember: the NodeDevice,
    after the agent's state was lost. cordoned: the cordons in the NodeDevice, which are only reported. forget: whether the name is
    unused: without a source, and without a pod that holds or requests it. status_maker: the maker of the status that replaces the
    observed one; None if that stays. now: monotonic seconds.
    """

    watch: str

    @property
    def resources(self) -> Mapping[str, Resource]: ...
    def has(self, resource_name: str) -> bool: ...
    def remember(self, resource_name: str, status: NodeDeviceStatus) -> None: ...
    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None: ...
    def forget(self, resource_name: str) -> bool: ...
    def status_maker(
        self, resource_name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker | None: ...


class Served(Protocol):
    """Resources of the kubelet, as its PodResources service shows them.

    has_healthy: whether the kubelet can allocate devices of the resource now. remember_published: devices of the published status,
    before the first snapshot. forget: whether the resource is unknown now.
    """

    @property
    def resources(self) -> Mapping[str, Resource]: ...
    def has_healthy(self, resource_name: str) -> bool: ...
    def snapshot(self, resource_name: str) -> Snapshot: ...
    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None: ...
    def forget(self, resource_name: str) -> bool: ...


class ServedStatus:
    """Makes statuses of the kubelet's resources. manager: of the resources served by this agent. delivery: of this agent."""

    watch = ""

    def __init__(self, served: Served, manager: DeviceManager, delivery: str) -> None:
        self._served = served
        self._manager = manager
        self._delivery = delivery
        # published from here
        self._names: set[str] = set()
        self._cordons: dict[str, Collection[str]] = {}

    @property
    def resources(self) -> Mapping[str, Resource]:
        return self._served.resources

    def has(self, resource_name: str) -> bool:
        is_here = resource_name in self._served.resources and not self._manager.is_recovering
        own = self._manager.resources.get(resource_name)
        if is_here and own is not None:
            is_here = not _is_in_use(own) and (resource_name in self._names or self._has_moved(own))
        if is_here:
            self._names.add(resource_name)
        else:
            self._names.discard(resource_name)
        return is_here

    def _has_moved(self, own: Resource) -> bool:
        # a kubelet whose plugin this agent is may show devices of a plugin that has just gone here, such as one that nothing
        # configures any more: it has had no grace period
        has_had_time = own.presence.state is EndpointState.GONE and not own.presence.is_not_configured
        may_be_anothers = has_had_time or self._delivery != names.DELIVERY_KUBELET
        return may_be_anothers and self._served.has_healthy(own.name)

    def remember(self, resource_name: str, status: NodeDeviceStatus) -> None:
        """Nothing to restore: the kubelet lists its resources."""

    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None:
        self._cordons[resource_name] = device_ids

    def forget(self, resource_name: str) -> bool:
        if not self._served.forget(resource_name):
            return False
        self._names.discard(resource_name)
        self._cordons.pop(resource_name, None)
        return True

    def status_maker(
        self, resource_name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker:
        self._served.remember_published(resource_name, observed.devices, now)
        found = self._served.snapshot(resource_name)
        metrics.observe(found)
        return status_maker(
            found,
            observed,
            wall_time=wall_time,
            version=__version__,
            delivery=names.DELIVERY_KUBELET,
            served_by=names.SERVED_BY_KUBELET,
            registered=_NO_CORDON if self._cordons.get(resource_name) else _SERVED,
            injectable=_INJECTABLE,
            is_watch_stale=is_watch_stale,
        )


def status_maker(now: Snapshot, before: NodeDeviceStatus, **more: Any) -> StatusMaker:
    """The maker for node_device_status() with these arguments."""
    held = sum(len(view.allocation.device_ids) for view in now.held)
    return StatusMaker(partial(node_device_status, now, before, **more), len(now.devices) + held > MOST_IN_LOOP)


def is_taken(resource_name: str, known: Iterable[Mapping[str, Resource]]) -> bool:
    """Whether one of these allocates devices of that name, or its plugin is expected back."""
    return any(resource_name in of and _is_in_use(of[resource_name]) for of in known)


def _is_in_use(own: Resource) -> bool:
    """Whether a plugin serves it here, pods hold devices of it, or its plugin is expected after a restart."""
    return own.is_live or bool(own.use.holders) or own.presence.settle_until is not None
