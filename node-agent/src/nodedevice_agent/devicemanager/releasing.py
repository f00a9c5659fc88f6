"""When the release of devices is published, and for which pods the number of releasing devices matters."""

from nodedevice_agent.devicemanager.allocation.book import AllocationBook
from nodedevice_agent.devicemanager.deadlines import Deadlines
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import Pod

# Delay before the release of devices is published. A pod that waits in the scheduler for just these devices is bound within
# milliseconds of the deletion and is known here by then, so the Node's number does not fall and rise while a kubelet admits it.
RELEASING_SETTLE_SECONDS = 0.25


class Releasing:
    """Resources with devices that are being released."""

    def __init__(self, book: AllocationBook, marks: Marks, deadlines: Deadlines) -> None:
        self._book = book
        self._marks = marks
        self._deadlines = deadlines
        # by resource name: when to publish (monotonic seconds), the earliest first
        self._publish_at: dict[str, float] = {}

    def pod_ended(self, pod_uid: str, now: float) -> None:
        """The pod has ended in the API; its containers may still run."""
        for name in self._book.set_releasing(pod_uid, now):
            self._publish_at.setdefault(name, now + RELEASING_SETTLE_SECONDS)
        self._set_deadline()

    def forget(self, resource_name: str) -> None:
        self._publish_at.pop(resource_name, None)
        self._set_deadline()

    def tick(self, now: float) -> None:
        """Time has passed."""
        for name in [name for name, due in self._publish_at.items() if due <= now]:
            del self._publish_at[name]
            self._marks.publish(name)
        self._set_deadline()

    def awaited_by(self, pod: Pod) -> None:
        """Publish resources that this pod lacks and others release: their number of reserved devices depends on the pod."""
        if not self._book.releasing:
            return
        releasing = {a.resource_name for uid in self._book.releasing for a in self._book.of_pod(uid)}
        held = {a.resource_name for a in self._book.of_pod(pod.uid)}
        requested = {request.resource_name for request in pod.device_requests}
        self._marks.publish_all(requested & releasing - held)

    def _set_deadline(self) -> None:
        self._deadlines.set("releasing", "", next(iter(self._publish_at.values()), None))
