"""Which requests of the checkpoint's writer have to be on disk before an allocation is shown or injected: by pod, and of all."""

from nodedevice_agent.checkpoint.writer import CheckpointWriter


class DurableRequests:
    """Of that writer."""

    def __init__(self, writer: CheckpointWriter) -> None:
        self._writer = writer
        # by pod UID ("": of all), as long as they may be under way; and the newest of them
        self._of: dict[str, int] = {}
        self._newest = 0

    def add(self, pod_uid: str, number: int) -> None:
        """A request for what was decided about that pod, "" about all."""
        under_way = {uid: n for uid, n in self._of.items() if n > self._writer.written}
        self._of = {**under_way, pod_uid: number}
        self._newest = number

    async def saved(self, pod_uid: str | None = None) -> None:
        """Wait until every allocation so far is on disk, or every one of that pod: none may be published or injected before."""
        number = -1
        while number != (newest := self._newest if pod_uid is None else self._number(pod_uid)):
            # other tasks run meanwhile, and an allocation that they make has to be on disk as well
            number = newest
            await self._writer.flushed(number)

    def _number(self, pod_uid: str) -> int:
        """A full disk must not hold up the containers of pods whose allocations it has."""
        return max(self._of.get(pod_uid, 0), self._of.get("", 0))
