"""NodeDevices of resources that others give out on this node: what each such source has to say, and what the kubelet's is.

They are only shown. A name that a plugin serves here is ours, whatever others have of it; one that moves between two keeps its
object.
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

# of devices that are named or held: a status with more is made in a thread
MOST_IN_LOOP: Final = 256
_SERVED = "True", Reason.SERVED_BY_KUBELET, "the kubelet's device manager serves this resource; it is only shown here"
_INJECTABLE = "True", Reason.SERVED_BY_KUBELET, "the kubelet gives the devices to containers"
_NO_CORDON = (
    "True",
    Reason.CORDON_NOT_POSSIBLE,
    "spec.cordonedDevices has no effect: the kubelet serves this resource and gives its devices out; remove the cordons and drain "
    "the node, or have the device plugin register with the agent",
)


class StatusMaker(NamedTuple):
    """made(): makes a status, of what is its own alone; is_long: better in a thread."""

    made: Callable[[], NodeDeviceStatus]
    is_long: bool


class Source(Protocol):
    """Somebody else who gives devices of this node out. watch: the name of the one that it needs; "" for none of its own."""

    watch: str

    @property
    def resources(self) -> Mapping[str, Resource]:
        """By name, the oldest first."""

    def has(self, resource_name: str) -> bool:
        """Whether what is shown of that name is this one's."""

    def remember(self, resource_name: str, status: NodeDeviceStatus) -> None:
        """Its NodeDevice, of an agent whose state was lost."""

    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None:
        """The cordons in its NodeDevice: they are only reported."""

    def forget(self, resource_name: str) -> bool:
        """Whether nobody has it here any more, and no pod holds or asks for it."""

    def status_maker(
        self, resource_name: str, observed: NodeDeviceStatus, wall_time: str, now: float, *, is_watch_stale: bool
    ) -> StatusMaker | None:
        """Of the status to be written over the observed one; None while the last published one stays. now: monotonic seconds."""


class Served(Protocol):
    """What the kubelet has, as far as it shows it."""

    @property
    def resources(self) -> Mapping[str, Resource]: ...

    def has_healthy(self, resource_name: str) -> bool:
        """Whether the kubelet gives out devices of it now."""

    def snapshot(self, resource_name: str) -> Snapshot:
        """Raises KeyError for an unknown resource."""

    def remember_published(self, resource_name: str, devices: Iterable[DeviceStatus], now: float) -> None:
        """Devices of the published status, before the first snapshot."""

    def forget(self, resource_name: str) -> bool:
        """Whether it is not known any more."""


class ServedStatus:
    """The statuses. manager: of what is served here. delivery: of this agent."""

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
        """Whether the kubelet serves it, and no plugin does here."""
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
        """The kubelet knows its resources itself."""

    def cordoned(self, resource_name: str, device_ids: Collection[str]) -> None:
        self._cordons[resource_name] = device_ids

    def forget(self, resource_name: str) -> bool:
        """Whether the kubelet does not have it any more, and no pod holds or asks for it."""
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
    """Of node_device_status() with these arguments."""
    held = sum(len(view.allocation.device_ids) for view in now.held)
    return StatusMaker(partial(node_device_status, now, before, **more), len(now.devices) + held > MOST_IN_LOOP)


def is_taken(resource_name: str, known: Iterable[Mapping[str, Resource]]) -> bool:
    """Whether one of these gives out devices by that name, or its plugin is expected back."""
    return any(resource_name in of and _is_in_use(of[resource_name]) for of in known)


def _is_in_use(own: Resource) -> bool:
    """Whether a plugin serves it here, pods hold devices of it, or its plugin is expected after a restart."""
    return own.is_live or bool(own.use.holders) or own.presence.settle_until is not None
