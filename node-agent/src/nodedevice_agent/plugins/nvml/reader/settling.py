"""Tracks Xids that are too new for the driver's action to count, and when to read it again. Pure."""

# The driver may set the recovery action that an Xid needs only after it has reported the Xid.
SETTLE_SECONDS = 1.0


class Settling:
    """Times are of one monotonic clock, in seconds. started: when the reader began to listen."""

    def __init__(self, started: float) -> None:
        self._started = started
        # UUID and Xid, and when the action after it counts
        self._due: dict[tuple[str, int], float] = {}

    def seen(self, uuid: str, xid: int, now: float) -> bool:
        """An Xid came. Returns whether it is the first of its kind in this second, so that the GPU is to be read at once."""
        if (uuid, xid) in self._due:
            return False
        self._due[uuid, xid] = now + SETTLE_SECONDS
        return True

    def unsettled(self, uuid: str, now: float) -> tuple[int, ...] | None:
        """For a reading that begins now; see health.Reading."""
        if now < self._started + SETTLE_SECONDS:
            return None
        return tuple(sorted(xid for (of, xid), due in self._due.items() if of == uuid and due > now))

    def next_due(self) -> float | None:
        """When a GPU is to be read for the second time; None if no Xid waits."""
        return min(self._due.values(), default=None)

    def take_due(self, now: float) -> set[str]:
        """The GPUs to read now."""
        due = {kind for kind, at in self._due.items() if at <= now}
        for kind in due:
            del self._due[kind]
        return {uuid for uuid, _ in due}
