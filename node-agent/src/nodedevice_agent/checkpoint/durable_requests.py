"""Which requests of the checkpoint's writer have to be on disk before an allocation is shown or injected: by pod, and of all."""

from nodedevice_agent.checkpoint.writer import CheckpointWriter


class DurableRequests:
    """Tracks the write requests of a CheckpointWriter by the pod whose allocations they include."""

    def __init__(self, writer: CheckpointWriter) -> None:
        self._writer = writer
        # by pod UID ("": of all), as long as they may be under way
        self._of: dict[str, int] = {}

    def add(self, pod_uid: str, number: int) -> None:
        """Note the write request that includes the decisions about this pod; "" stands for all pods."""
        under_way = {uid: n for uid, n in self._of.items() if n > self._writer.written}
        self._of = {**under_way, pod_uid: number}

    async def saved(self, pod_uid: str | None = None) -> None:
        """Wait until every allocation so far is on disk, or every one of that pod: none may be published or injected before."""
        while True:
            number = self._number(pod_uid)
            await self._writer.flushed(number)
            if number == self._number(pod_uid):
                return
            # other tasks ran meanwhile, and an allocation that they have made has to be on disk as well

    def _number(self, pod_uid: str | None) -> int:
        """A full disk must not block containers of pods whose allocations are already written."""
        numbers = (number for uid, number in self._of.items() if pod_uid is None or uid in (pod_uid, ""))
        return max(numbers, default=0)
