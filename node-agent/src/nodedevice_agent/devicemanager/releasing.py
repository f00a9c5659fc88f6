"""Decides when the devices of a finished pod are free, when that is published, and for which pods their number matters."""

from msgspec import Struct

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.allocation.held_calls import PreStartCalls, Reallocations
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.runtime import RuntimeContainers

# Delay before the release of devices is published. A pod that waits in the scheduler for just these devices is bound within
# milliseconds of the deletion and is known here by then, so the Node's number does not fall and rise while a kubelet admits it.
RELEASING_SETTLE_SECONDS = 0.25


class Releasing(Struct, eq=False):
    """Ended pods whose containers, or calls to plugins, may still use devices. containers: None if no runtime reports their end."""

    book: AllocationBook
    marks: Marks
    deadlines: Deadlines
    containers: RuntimeContainers | None
    reallocations: Reallocations
    pre_starts: PreStartCalls
    # by resource name: when to publish (monotonic seconds), the earliest first
    _publish_at: dict[str, float] = {}

    def pod_ended(self, pod_uid: str, now: float, *, is_kept: bool = False) -> bool:
        """The pod has ended in the API. Returns whether its devices are free. is_kept: a container may use them."""
        has_call = self.containers is not None and self.pre_starts.has_orphaned_call(pod_uid)
        if is_kept or has_call or self._may_run(pod_uid):
            for name in self.book.set_releasing(pod_uid, now):
                self._publish_at.setdefault(name, now + RELEASING_SETTLE_SECONDS)
            self._set_deadline()
            return False
        self._release(pod_uid)
        return True

    def containers_ended(self, pod_uid: str) -> None:
        """All containers of a finished or deleted pod have ended in the runtime: its devices are free."""
        if pod_uid in self.book.releasing and not self.pre_starts.has_orphaned_call(pod_uid):
            self._release(pod_uid)

    def call_ended(self, ticket: int) -> None:
        """A call has returned. If its pod has ended, its plugin may have used the devices until then."""
        pod_uid = self.pre_starts.orphan_ended(ticket)
        if pod_uid is not None and not self._may_run(pod_uid):
            self.containers_ended(pod_uid)

    def _may_run(self, pod_uid: str) -> bool:
        """Whether a container that holds devices may still have a process."""
        if self.containers is None:
            return False
        holding = frozenset(allocation.container for allocation in self.book.of_pod(pod_uid))
        return not self.containers.have_ended(pod_uid, holding)

    def _release(self, pod_uid: str) -> None:
        touched = self.book.release(pod_uid)
        if touched:
            self.reallocations.drop(pod_uid)
            for name in touched:
                self.book.resources[name].released()
            self.marks.saved_and_changed(touched)

    def forget(self, resource_name: str) -> None:
        self._publish_at.pop(resource_name, None)
        self._set_deadline()

    def tick(self, now: float) -> None:
        for name in [name for name, due in self._publish_at.items() if due <= now]:
            del self._publish_at[name]
            self.marks.publish(name)
        self._set_deadline()

    def awaited_by(self, pod: Pod) -> None:
        """Publish resources that this pod lacks and others release: their number of reserved devices depends on the pod."""
        if not self.book.releasing:
            return
        releasing = set[str]().union(*map(self.book.names_of_pod, self.book.releasing))
        requested = {request.resource_name for request in pod.device_requests}
        self.marks.publish_all(requested & releasing - self.book.names_of_pod(pod.uid))

    def _set_deadline(self) -> None:
        self.deadlines.set("releasing", "", next(iter(self._publish_at.values()), None))
