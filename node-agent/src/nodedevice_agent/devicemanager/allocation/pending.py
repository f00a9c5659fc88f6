"""Pods that asked and did not get: why, and when it is worth trying again.

The kubelet fails such a pod for good (UnexpectedAdmissionError); here it waits. Want of devices is tried again when something
about the resource changes; a plugin that answered with an error is asked again with growing pauses.
"""

from dataclasses import dataclass

from nodedevice_common.backoff import exponential_seconds

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """retry_at: monotonic seconds, or None where only a change can help. attempts: failed calls so far.

    others: resources besides resource_name whose change may help.
    """

    pod_uid: str
    container: str
    resource_name: str
    reason: str
    message: str
    attempts: int = 0
    retry_at: float | None = None
    others: frozenset[str] = frozenset()

    def is_helped_by(self, changed: frozenset[str]) -> bool:
        """Whether a change of one of these resources makes it worth looking at the pod again."""
        return self.resource_name in changed or not changed.isdisjoint(self.others)


def pause_seconds(attempts: int) -> float:
    """1, 2, 4, ... 60 seconds after the first, second, third failed attempt."""
    return exponential_seconds(attempts - 1, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
