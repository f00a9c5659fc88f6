"""Calls to the driver in a thread of their own, each with a deadline, so that a hanging call blocks only its thread.

Nothing can end a hanging call from outside. Its thread is abandoned, the next call gets a new one, and the caller can check
later whether it has returned.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class CallHangs(Exception):
    """The call missed its deadline. job: to check later."""

    def __init__(self, job: "Job[Any]") -> None:
        super().__init__("no answer within the deadline")
        self.job = job


class Job(Generic[_T]):
    """One running call."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function = function
        self._done = threading.Event()
        self._result: _T | None = None
        self._error: Exception | None = None

    def wait(self, seconds: float) -> bool:
        """Whether it returned in this time."""
        return self._done.wait(seconds)

    def run(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            # raised by result()
            self._error = error
        finally:
            self._done.set()

    def result(self) -> _T:
        """The result of a job that is done. Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # None may be the result itself


class Calls:
    """For one calling thread. seconds: the deadline of each call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._worker: SimpleQueue[Job[Any] | None] | None = None

    def do(self, function: Callable[[], _T]) -> _T:
        """Raises CallHangs, or what the function raises."""
        job = Job(function)
        if self._worker is None:
            self._worker = SimpleQueue()
            threading.Thread(target=_work, args=(self._worker,), daemon=True, name="nvml calls").start()
        self._worker.put(job)
        if not job.wait(self._seconds):
            # the thread ends when the call returns, if it ever does
            self._worker.put(None)
            self._worker = None
            raise CallHangs(job)
        return job.result()


def _work(jobs: "SimpleQueue[Job[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()
