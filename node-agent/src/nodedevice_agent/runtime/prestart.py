"""PreStartContainer by what the runtime tells: owed again when an instance has ended, and never about a device in use.

Containers of a pod that share a device (an init container's is used again) are prepared together, while none of them runs.
Source: kubelet device manager, PreStartContainer before every start; the call itself is made by pre_start.
"""

from nodedevice_agent.devicemanager.allocation.prestart import PendingPreStart
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.manager import DeviceManager


def instance_ended(manager: DeviceManager, pod_uid: str, container: str, now: float) -> list[Effect]:
    """A container has ended which held devices: whoever uses them next is prepared for them.

    That is the container itself, if it starts again, and whoever shares a device with it.
    """
    sharers = manager.book.sharers(pod_uid, container)
    is_in_use = any(manager.containers.is_running(pod_uid, a.container) for a in sharers)
    if is_in_use or manager.book.is_releasing(pod_uid):
        return []
    manager.pre_starts.require_if_supported((a.pod_uid, a.container, a.resource_name) for a in sharers)
    return manager.pre_starts.due(manager.book, manager.resources, now)


def instance_begun(manager: DeviceManager, pod_uid: str, container: str, now: float) -> list[Effect]:
    """A container is created with its devices: a call that is still owed for one of them must no longer be made."""
    effects: list[Effect] = []
    for a in manager.book.sharers(pod_uid, container):
        effects += manager.pre_starts.cancel((a.pod_uid, a.container, a.resource_name))
    return effects + manager.pre_starts.due(manager.book, manager.resources, now) if effects else []


def unprepared(manager: DeviceManager, pod_uid: str, container: str) -> PendingPreStart | None:
    """Which call has to be answered before this container may start; None where none has to."""
    for a in manager.book.sharers(pod_uid, container):
        key = (a.pod_uid, a.container, a.resource_name)
        # another's call matters only while it is under way: the plugin may be resetting what both use
        if a.container == container or manager.pre_starts.is_in_flight(key):
            found = manager.pre_starts.pending_call(key, manager.resources[a.resource_name])
            if found is not None:
                return found
    return None
