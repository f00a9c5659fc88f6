"""The process that reads the driver: `python -m ….nvml.reader OPTIONS`, one message per line on standard output.

It reports an inventory once, then the driver's events and a reading of each GPU every few seconds. It exits when its parent is gone
or when the driver does not work. It only reports that the GPUs have changed: NVML shows new ones to a new session alone, and that
is another reader. It keeps no state and decides nothing.

The driver is called in a thread of its own, each call with a deadline, so that a hanging call blocks only its thread. Nothing can
end it from outside: its thread is abandoned, the next call gets a new one, and whether it has returned can be checked later.
"""

import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import msgspec
from nodedevice_common.decoding import decode

from nodedevice_agent.plugins.nvml.gpu import Ancestor, Ports
from nodedevice_agent.plugins.nvml.health import Reading
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader import driver, messages
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, EventWatch

_Answer = TypeVar("_Answer")

# Events within this time are reported together.
_GATHER_SECONDS = 0.1
# GPUs are read at most this often, however many events there are.
_MIN_POLL_SECONDS = 1.0


def main() -> None:
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        options = decode(sys.argv[1], messages.ReaderOptions)
        Reader(options).run()
    except driver.DriverProblem as error:
        report(error.problem)
    except BrokenPipeError:
        pass
    except BaseException:
        # printed here, as os._exit skips the interpreter's own report
        traceback.print_exc()
        os._exit(1)
    # a normal exit would wait for threads that hang in the driver
    os._exit(0)


def _exit_with_parent() -> None:
    # not sys.stdin: its lock would block the interpreter's exit
    while os.read(0, 4096):
        pass
    os._exit(0)


def report(message: messages.Message) -> None:
    """Raises BrokenPipeError when the parent no longer reads."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


class CallHangs(Exception):
    """The call missed its deadline. job: to check later."""

    def __init__(self, job: "Job[Any]") -> None:
        super().__init__("no answer within the deadline")
        self.job = job


class Job(Generic[_Answer]):
    """One running call."""

    def __init__(self, function: Callable[[], _Answer]) -> None:
        self._function = function
        self.done = threading.Event()
        # set by run(), unless the call raises
        self._result: _Answer
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            # raised by result()
            self._error = error
        finally:
            self.done.set()

    def result(self) -> _Answer:
        """The result of a job that is done. Raises what the call raised."""
        if self._error is not None:
            raise self._error
        return self._result


class Calls:
    """For one calling thread. seconds: the deadline of each call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._worker: SimpleQueue[Job[Any] | None] | None = None

    def do(self, function: Callable[[], _Answer]) -> _Answer:
        """Raises CallHangs, or what the function raises."""
        job = Job(function)
        if self._worker is None:
            self._worker = SimpleQueue()
            threading.Thread(target=_work, args=(self._worker,), daemon=True, name="nvml calls").start()
        self._worker.put(job)
        if not job.done.wait(self._seconds):
            # the thread ends when the call returns, if it ever does
            self._worker.put(None)
            self._worker = None
            raise CallHangs(job)
        return job.result()


def _work(jobs: "SimpleQueue[Job[Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        job.run()


class Reader:
    """One NVML session."""

    def __init__(self, options: messages.ReaderOptions) -> None:
        self._options = options
        self._calls = Calls(options.call_seconds)
        self._driver = driver.Driver(options.host_root)
        self._events = EventWatch()
        self._handles: list[driver.Handle] = []
        # by UUID: the call that hangs, and its name
        self._hanging: dict[str, tuple[Job[Any], str]] = {}
        # whether any call has hung so far
        self._has_hung = False
        self._count = 0
        self._reported_lacking: messages.Lacking | None = None
        self._reported_instances: dict[str, tuple[MigInstance, ...] | None] = {}

    def run(self) -> None:
        """Raises DriverProblem and BrokenPipeError."""
        version = self._wait_for(self._driver.open)
        self._count = self._wait_for(self._driver.count)
        if self._count == 0:
            raise driver.DriverProblem(driver.NO_GPU)
        self._find(version)
        self._poll()
        self._follow()

    # -- inventory ----------------------------------------------------------------------------------------------------------

    def _wait_for(self, call: Callable[[], _Answer]) -> _Answer:
        """Wait for this answer, however long it takes: nothing works without it."""
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            self._wait_until_it_returns(hang)
            answer: _Answer = hang.job.result()
            return answer

    def _wait_until_it_returns(self, hang: CallHangs) -> None:
        report(driver.hangs(self._driver.calling))
        while not hang.job.done.wait(self._options.poll_seconds):
            report(messages.Alive())

    def _find(self, version: str) -> None:
        unnamed, lost = self._describe()
        by_bus_id = {handle.gpu.pci_bus_id: handle.gpu.uuid for handle in self._handles if handle.gpu.pci_bus_id}
        ports = {handle.gpu.uuid: self._ports_of(handle, by_bus_id) for handle in self._handles}
        ancestors = self._ancestors()
        self._wait_for(self._events.open)
        self._register_missing()
        gpus = [handle.gpu for handle in self._handles]
        self._reported_instances = {gpu.uuid: gpu.instances for gpu in gpus}
        report(messages.Found(version, gpus, ports, ancestors, unnamed, lost, self._has_hung))

    def _describe(self) -> tuple[list[str], int]:
        """Why some GPUs cannot be identified, and how many are lost."""
        unnamed, hanging, lost = [], 0, 0
        for index in range(self._count):
            try:
                handle = self._calls.do(partial(self._driver.describe, index))
                if any(handle.gpu.uuid == other.gpu.uuid for other in self._handles):
                    raise driver.GpuUnidentified(f"its UUID is another's too, {handle.gpu.uuid}")
                self._handles.append(handle)
            except CallHangs:
                unnamed.append(f"GPU {index} does not respond: {self._driver.calling} hangs")
                hanging += 1
                report(messages.Alive())
            except driver.GpuLost:
                lost += 1
            except driver.GpuUnidentified as error:
                unnamed.append(f"GPU {index} cannot be identified: {error}")
        if not self._handles and unnamed:
            reason = driver.HANGS if hanging == len(unnamed) else driver.FAILED
            raise driver.DriverProblem(messages.Problem(reason, "; ".join(unnamed)))
        return unnamed, lost

    def _ports_of(self, handle: driver.Handle, uuid_by_bus_id: Mapping[str, str]) -> Ports:
        """Asks for every link: one that is down shows nothing about the next."""
        calls = (partial(self._driver.link_end, handle, link, uuid_by_bus_id) for link in range(driver.MAX_LINKS))
        ends = Counter(filter(None, (self._call_for(handle, call) for call in calls)))
        to_switches = ends.pop(driver.SWITCH, 0)
        return Ports(dict(ends), to_switches)

    def _ancestors(self) -> list[tuple[str, str, Ancestor]]:
        found = []
        for one, other in combinations(sorted(self._handles, key=lambda handle: handle.gpu.uuid), 2):
            level = self._call_for(one, partial(self._driver.ancestor, one, other))
            if level is not None:
                found.append((one.gpu.uuid, other.gpu.uuid, level))
        return found

    def _register_missing(self) -> None:
        """Register GPUs whose calls hung before: otherwise their Xids would be missed."""
        for handle in self._handles:
            if handle.gpu.uuid not in self._events.tried:
                self._call_for(handle, partial(self._events.register, handle))
        self._events.start()

    # -- polling --------------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        polled_at = time.monotonic()
        poll_at = polled_at + self._options.poll_seconds
        while True:
            if self._events.happened.wait(max(0.0, poll_at - time.monotonic())):
                if self._report_events():
                    poll_at = min(poll_at, polled_at + _MIN_POLL_SECONDS)
                time.sleep(_GATHER_SECONDS)
            if time.monotonic() >= poll_at:
                self._poll()
                polled_at = time.monotonic()
                poll_at = polled_at + self._options.poll_seconds

    def _report_events(self) -> bool:
        """Returns whether the GPUs should be read now."""
        counts = self._events.take()
        for event, count in counts.items():
            if event.kind == XID:
                report(messages.Xid(event.uuid, event.data, count))
            elif event.kind == DOUBLE_BIT_ECC:
                report(messages.EccError(event.uuid))
        return READ_GPUS in counts

    def _poll(self) -> None:
        self._register_missing()
        readings = {}
        for handle in self._handles:
            uuid = handle.gpu.uuid
            reading = self._call_for(handle, partial(self._driver.reading, handle))
            readings[uuid] = reading or Reading(hung_call=self._hanging[uuid][1])
        self._report_instances()
        report(messages.Readings(readings))
        self._report_lacking()
        try:
            is_stale = any(handle.is_stale for handle in self._handles)
            if self._calls.do(self._driver.count) != self._count or is_stale:
                report(messages.Changed())
        except CallHangs as hang:
            self._wait_until_it_returns(hang)
            # a new session finds what was missed meanwhile
            report(messages.Changed())

    def _report_instances(self) -> None:
        """First, so that a GPU that has just entered MIG mode is never listed whole with a new reading."""
        instances = {handle.gpu.uuid: handle.gpu.instances for handle in self._handles}
        if instances != self._reported_instances:
            report(messages.Divided(instances))
            self._reported_instances = instances

    def _report_lacking(self) -> None:
        """Report missing features: they show only when used, so not before the first poll."""
        by_uuid = {}
        for handle in self._handles:
            uuid = handle.gpu.uuid
            has_no_events = uuid in self._events.tried and not self._events.reports(uuid)
            by_uuid[uuid] = tuple(sorted([*self._driver.not_supported(uuid), *(["events"] if has_no_events else [])]))
        lacking = messages.Lacking(by_uuid)
        if lacking != self._reported_lacking:
            report(lacking)
            self._reported_lacking = lacking

    def _call_for(self, handle: driver.Handle, call: Callable[[], _Answer]) -> _Answer | None:
        """None when it hangs; then the GPU is not called again before that call returns."""
        uuid = handle.gpu.uuid
        if uuid in self._hanging:
            if not self._hanging[uuid][0].done.is_set():
                return None
            del self._hanging[uuid]
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            self._has_hung = True
            self._hanging[uuid] = (hang.job, handle.calling or self._driver.calling)
            # with many hanging GPUs this takes minutes
            report(messages.Alive())
            return None


if __name__ == "__main__":
    main()
