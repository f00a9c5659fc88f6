"""At most one Allocate call for a container, for the resources whose setting `allocateRetry` is `never`.

Some device plugins, such as HAMi, find the pod of a call by annotations and order, as a call only names devices. A second call then
uses the data of another pod, and the two pods run with swapped devices unnoticed. The kubelet makes no second call: it fails the
pod. The agent keeps the pod pending until it is deleted.
A call is recorded first, and sent when the record is on disk. The allocation replaces the record, or the record ends with the pod.
A call without a known result counts as made. After the checkpoint was lost, this applies to every bound pod.
The setting never applies to the agent's built-in plugins: a call contains all the data that they need. After a boot the agent calls
them again for the devices that a pod holds.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct, structs
from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import DeviceRequest, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey

AllocateRetry = Literal["always", "never"]
ANY_RESOURCE: Final = "*"

# A key in a checkpoint: pods' calls are unknown, as the checkpoint before it was lost.
_EVERY_POD: Final[AllocationKey] = ("*", "*", "*")
# Starts a message, which may be truncated.
_REMEDY: Final = "delete the pod: Allocate is called only once for a container (allocateRetry: never)"
_RESTARTED = "a call before the agent's restart led to no allocation"
_LOST = "the checkpoint was lost, and it is not known whether it was called"
_CHANGED = "devices of the pod changed during the call"


class AllocateOnce(Struct, eq=False):
    """Calls made for resources with that policy. policy: by resource name; * for all others."""

    _policy: Mapping[str, AllocateRetry]
    _book: AllocationBook
    _marks: Marks
    # by call without an allocation: why it has none; "" while it is in flight
    calls: dict[AllocationKey, str] = {}
    # containers that were refused because the response of their call was lost
    refused: dict[AllocationKey, PendingAllocation] = {}
    # the checkpoint was lost, and not all pods have been listed since
    is_lost: bool = False

    def applies_to(self, resource_name: str) -> bool:
        """Whether a container must not get a second call; never for a built-in plugin."""
        if not self._policy:
            return False
        resource = self._book.resources.get(resource_name)
        if resource is not None and resource.presence.is_built_in:
            return False
        return self._is_set_for(resource_name)

    @property
    def lost(self) -> dict[AllocationKey, PendingAllocation]:
        """The refused containers whose resources still have that policy."""
        return {key: lost for key, lost in self.refused.items() if self.applies_to(key[2])}

    def record(self, key: AllocationKey) -> None:
        self.calls[key] = ""

    def committed(self, allocations: Iterable[Allocation]) -> None:
        for allocation in allocations:
            self.calls.pop(allocation.key, None)

    def refuse(self, pod_uid: str, requests: Iterable[DeviceRequest], why: str = "") -> PendingAllocation | None:
        """Why the pod gets none of these devices; None if no call for it has failed. why: the failure of its transaction."""
        for request in requests:
            key = pod_uid, request.container, request.resource_name
            if key in self.calls and self.applies_to(key[2]):
                self.calls[key] = self.calls[key] or why or _CHANGED
                return _final(key, self.calls[key])
        return None

    def creation_refused(self, pod_uid: str, container: str) -> None:
        """The agent refused the creation of this container: its pod becomes pending if the refusal is permanent."""
        for allocation in self._book.of_container(pod_uid, container):
            message = self.lost_response(allocation)
            if message and allocation.key not in self.refused:
                self.refused[allocation.key] = PendingAllocation(
                    *allocation.key, Reason.ALLOCATE_FAILED, message, is_final=True
                )
                self._marks.publish(allocation.resource_name)

    def lost_response(self, allocation: Allocation) -> str:
        """Why a container with this allocation can no longer start; "" if it can, or if the plugin is called again."""
        if allocation.response is not None or not self.applies_to(allocation.resource_name):
            return ""
        return f"{_REMEDY}; the response of its device plugin was lost with the checkpoint"

    def forget(self, pod_uid: str) -> None:
        """Remove the calls of a finished pod."""
        if not self.refused and not self.calls:
            return
        self.refused = {key: lost for key, lost in self.refused.items() if key[0] != pod_uid}
        for key in [key for key in self.calls if key[0] == pod_uid]:
            del self.calls[key]
            self._marks.save()

    def keys(self) -> tuple[AllocationKey, ...]:
        """The calls to store in the checkpoint."""
        return (_EVERY_POD, *self.calls) if self.is_lost else tuple(self.calls)

    def pod_uids(self) -> frozenset[str]:
        return frozenset(key[0] for key in self.calls)

    def restore(self, keys: Iterable[AllocationKey]) -> None:
        """Restore calls from the checkpoint. Calls for resources whose setting was changed meanwhile are dropped."""
        keys = tuple(keys)
        self.is_lost = _EVERY_POD in keys
        self.calls = {key: _RESTARTED for key in keys if self._is_unmet(key)}

    def checkpoint_lost(self, pods: Iterable[Pod]) -> None:
        """Mark every bound pod as possibly called. pods: the pods known so far."""
        self.is_lost = "never" in self._policy.values()
        for pod in pods:
            self.pod_seen(pod)

    def pod_seen(self, pod: Pod) -> None:
        for request in pod.device_requests if self.is_lost else ():
            key = pod.uid, request.container, request.resource_name
            if self._is_unmet(key):
                self.calls.setdefault(key, _LOST)

    def pods_synced(self, pods: Iterable[Pod]) -> None:
        """All pods, as the API lists them. Pods bound when the checkpoint was lost have been seen, except unproven static pods."""
        for pod in pods if self.is_lost else ():
            if pod.config_hash:
                self.pod_seen(structs.replace(pod, uid=pod.config_hash))
        if self.is_lost:
            self.is_lost = False
            self._marks.save()

    def _is_unmet(self, key: AllocationKey) -> bool:
        """Also for a built-in plugin: another plugin, which was called before, may take over its resource again."""
        return self._is_set_for(key[2]) and self._book.of(*key) is None

    def _is_set_for(self, resource_name: str) -> bool:
        return self._policy.get(resource_name, self._policy.get(ANY_RESOURCE, "always")) == "never"


def _final(key: AllocationKey, why: str) -> PendingAllocation:
    return PendingAllocation(*key, Reason.ALLOCATE_FAILED, f"{_REMEDY}; {why}", is_final=True)
