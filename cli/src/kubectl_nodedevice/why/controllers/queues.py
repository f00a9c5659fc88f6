"""Explains queues that hold pods back by a scheduling gate or a suspended Job. Pure.

If a person removes a queue's gate, the queue deletes the pod. Source: Kueue, pkg/controller/jobs/pod.
"""

from typing import Final

from kubectl_nodedevice.cluster import Meta, Pod
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.kinds import Workload

# the prefix of Kueue's gates and labels; versions of its Workloads, the newest first
KUEUE: Final = "kueue.x-k8s.io"
VERSIONS: Final = tuple(f"{KUEUE}/{version}" for version in ("v1", "v1beta2", "v1beta1"))
_GROUP: Final = f"{KUEUE}/pod-group-name"
_QUEUE: Final = f"{KUEUE}/queue-name"


def is_queued(meta: Meta) -> bool:
    """Whether Kueue suspends that Job, or gates that pod."""
    return _QUEUE in meta.labels


def gates_of_queue(pod: Pod) -> tuple[str, ...]:
    return tuple(each for each in pod.gates if each.startswith(f"{KUEUE}/"))


def workload_for(found: list[Workload], *owners: Meta) -> Workload | None:
    """Return the newest Workload of these objects, or of their group."""
    uids = {each.uid for each in owners if each.uid}
    groups = {each.labels[_GROUP] for each in owners if _GROUP in each.labels}
    mine = [each for each in found if uids & set(each.owners) or each.meta.name in groups]
    return max(mine, key=lambda each: each.meta.created, default=None)


def obstacle(found: Workload | None, *, is_read: bool) -> Obstacle:
    """is_read: the reader may see Workloads."""
    unseen = "which does not exist yet" if is_read else "which you may not see"
    name = f"Workload {found.meta.name}" if found else f"its Workload, {unseen}"
    words = f": {found.words}" if found else ""
    options = f"workloads.{KUEUE} {found.meta.name}" if found else f"workloads.{KUEUE}"
    return Obstacle("QueueWaits", fields={"workload": name, "words": words.rstrip("."), "workload_options": options})
