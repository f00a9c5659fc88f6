"""Calls to the driver in a thread of their own, each with a deadline: a call that hangs holds up its thread and nobody else.

Nothing can end a hanging call from outside. Its thread is left to it, the next call gets a new one, and who made the call can
see whether it has come back.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")


class CallHangs(Exception):
    """Not back within its deadline. job: to ask later."""

    def __init__(self, job: "Job[Any]") -> None:
        super().__init__("no answer within the deadline")
        self.job = job


class Job(Generic[Answer]):
    """One call under way."""

    def __init__(self, function: Callable[[], Answer]) -> None:
        self._function = function
        self._done = threading.Event()
        self._answer: Answer | None = None
        self._error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it has come back by then."""
        return self._done.wait(seconds)

    def run(self) -> None:
        try:
            self._answer = self._function()
        except Exception as error:
            # it is raised where the answer is waited for
            self._error = error
        finally:
            self._done.set()

    def result(self) -> Answer:
        """Of a job that is done. Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # None is then the answer itself


class Calls:
    """Used by one thread. seconds: the deadline of each call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._worker: SimpleQueue[Job[Any] | None] | None = None

    def do(self, function: Callable[[], Answer]) -> Answer:
        """Raises CallHangs, or what the function raises."""
        job = Job(function)
        if self._worker is None:
            self._worker = SimpleQueue()
            threading.Thread(target=_work, args=(self._worker,), daemon=True, name="nvml calls").start()
        self._worker.put(job)
        if not job.wait(self._seconds):
            # it ends with this call, should that ever come back
            self._worker.put(None)
            self._worker = None
            raise CallHangs(job)
        return job.result()


def _work(jobs: "SimpleQueue[Job[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()
