"""Decides which devices to advertise to the kubelet, which ones to prefer, and the condition Injectable.

A cordoned device is advertised as unhealthy while it is free, and as healthy while a container holds it: otherwise the kubelet
would refuse to restart that container. Pods that hold a device only see changes of its own health.
Source: kubelet deviceplugin v1beta1, ListAndWatch and GetPreferredAllocation; devicesToAllocate @ 1.37.
"""

from collections.abc import Collection, Iterable
from enum import Enum

from msgspec import Struct
from nodedevice_api.device_ids import original_id
from nodedevice_api.names import Reason
from nodedevice_common.text import shown

from nodedevice_agent.devicemanager.allocation.selection import Selection, select
from nodedevice_agent.devicemanager.allocation.topology import Topology, hints, merge
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice


class Advertised(Struct, frozen=True):
    """devices: sorted by original ID, with the advertised health. options: None while no plugin is connected."""

    devices: tuple[PluginDevice, ...]
    options: PluginOptions | None


def advertised(resource: Resource, elsewhere: Collection[str] = ()) -> Advertised | None:
    """Return what to advertise now, or None. elsewhere: devices that pods hold without the kubelet's allocation.

    Nothing is advertised before the administrator's cordons are known, nor before a plugin has listed its devices: the kubelet
    would allocate cordoned devices, or take the empty list as final.
    """
    # read once: while a thread runs this, the event loop may replace the list
    listed = resource.devices
    # the devices of a disconnected plugin are unhealthy, and forgotten when its grace period ends
    was_listed = resource.is_live or bool(listed)
    if not resource.use.are_cordons_synced or not was_listed:
        return None
    devices = []
    for device_id in sorted(listed):
        # if the kubelet allocated an unconfirmed device, the pod would fail permanently
        is_out = resource.use.is_cordoned(device_id) or device_id in resource.listed.unconfirmed
        is_offered = device_id in resource.use.holders or not is_out
        is_healthy = is_offered and device_id not in elsewhere and availability.is_healthy(resource, device_id)
        devices.append(PluginDevice(original_id(device_id), is_healthy, listed[device_id].numa_nodes))
    return Advertised(tuple(devices), resource.newest.options if resource.is_live else None)


def select_preferred(
    resource: Resource, topology: Topology, available: Iterable[str], must_include: Iterable[str], size: int
) -> Selection:
    """Select `size` preferred devices of the available ones; fewer if the others should not be allocated.

    available, must_include: from the kubelet's request; it adds missing devices itself. The device plugin may reorder the pool.
    """
    settled = tuple(sorted(set(must_include)))
    usable = tuple(i for i in sorted(set(available).difference(settled)) if availability.is_usable(resource, i))
    affinity = None
    if topology.is_aligning:
        possible = hints(resource.devices, size, usable, settled, topology.numa_nodes)
        affinity = merge(topology, [possible]).affinity
    return select(resource.devices, size, settled, usable, affinity)


class KubeletRegistrationState(Enum):
    """The status, reason and message of the condition in each state; {} is the cause."""

    REGISTERED = (
        "True",
        Reason.KUBELET_REGISTERED,
        "the kubelet accepted the registration and injects devices into containers",
    )
    UNREACHABLE = (
        "False",
        Reason.KUBELET_UNREACHABLE,
        "cannot register with the kubelet ({}): start the kubelet, or set --kubelet-dir to its directory",
    )
    REFUSED = "False", Reason.KUBELET_REFUSED, "the kubelet refused the registration; retrying: {}"
    LIST_TOO_BIG = (
        "False",
        Reason.KUBELET_LIST_TOO_BIG,
        "{}; the kubelet accepts at most 4 MiB: list fewer devices on this node, or use --delivery nri",
    )
    CANNOT_SERVE = "False", Reason.KUBELET_CANNOT_SERVE, "cannot serve a socket for the kubelet; retrying: {}"
    NOT_ADVERTISED = (
        "False",
        Reason.NOTHING_FOR_KUBELET,
        "not registered with the kubelet until the device plugin lists devices and the cordons are known",
    )


class KubeletRegistration(Struct, frozen=True):
    """detail: the cause, such as the kubelet's error message."""

    state: KubeletRegistrationState
    detail: str = ""


def injectable(registration: KubeletRegistration, plugin_note: str = "") -> tuple[str, str, str]:
    """Return status, reason and message of the condition. plugin_note: the built-in plugin's, if the kubelet injects."""
    status, reason, message = registration.state.value
    more = f"; {plugin_note}" if plugin_note and status == "True" else ""
    return status, reason, message.format(shown(registration.detail)) + more
