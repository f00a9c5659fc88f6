"""The process that reads the driver: `python -m ….nvml.reader OPTIONS`, one message per line on standard output.

It reports an inventory once, then the driver's events and a reading of each GPU every few seconds, and takes messages.Orders from
standard input. It exits when its parent is gone or when the driver does not work. It only reports that the GPUs have changed: NVML
shows new ones to a new session alone, and that is another reader. It decides nothing.

The driver is called in a thread of its own, each call with a deadline. Nothing can end a call that hangs: its thread is abandoned,
the next call gets a new one, and whether the call has returned can be checked later.
"""

import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from nodedevice_common.decoding import Undecodable, decode

from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Ports
from nodedevice_agent.plugins.nvml.reader import driver, messages
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, READ_GPUS, XID, EventWatch
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem, hangs, no_gpu
from nodedevice_agent.plugins.nvml.reader.settling import Settling
from nodedevice_agent.plugins.nvml.reasons import GpuReason

_Answer = TypeVar("_Answer")

# Events within this time are reported together.
_GATHER_SECONDS = 0.1
# GPUs are read at most this often, however many events there are.
_MIN_POLL_SECONDS = 1.0


def main() -> None:
    inbox = Inbox()
    threading.Thread(target=inbox.follow, daemon=True).start()
    try:
        options = decode(sys.argv[1], messages.ReaderOptions)
        Reader(options, inbox).run()
    except DriverProblem as error:
        report(error.problem)
    except BrokenPipeError:
        pass
    except BaseException:
        # printed here, as os._exit skips the interpreter's own report
        traceback.print_exc()
        os._exit(1)
    # a normal exit would wait for threads that hang in the driver
    os._exit(0)


class Inbox:
    """orders: the agent's latest ones."""

    def __init__(self) -> None:
        self.orders = messages.Orders()

    def follow(self) -> None:
        """Take orders until the parent is gone; the process exits with it."""
        rest = b""
        # not sys.stdin: its lock would block the interpreter's exit
        while chunk := os.read(0, 65536):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                # another line is ignored
                with suppress(Undecodable):
                    self.orders = decode(line, messages.Orders)
        os._exit(0)


def report(message: messages.Message) -> None:
    """Raises BrokenPipeError when the parent no longer reads."""
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()


class CallHangs(Exception):
    """The call missed its deadline. call: to check later."""

    def __init__(self, call: Future[Any]) -> None:
        super().__init__("no response within the deadline")
        self.call = call


class Calls:
    """For one calling thread. seconds: the deadline of each call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._worker = ThreadPoolExecutor(1, "nvml calls")

    def do(self, function: Callable[[], _Answer]) -> _Answer:
        """Raises CallHangs, or what the function raises."""
        call = self._worker.submit(function)
        if not wait([call], self._seconds).done:
            # the thread ends when the call returns, if it ever does
            self._worker.shutdown(wait=False)
            self._worker = ThreadPoolExecutor(1, "nvml calls")
            raise CallHangs(call)
        return call.result()


class Reader:
    def __init__(self, options: messages.ReaderOptions, inbox: Inbox | None = None) -> None:
        self._options = options
        self._inbox = inbox or Inbox()
        self._calls = Calls(options.call_seconds)
        self._driver = driver.Driver(options.host_root, options.library_dir)
        self._settling = Settling(time.monotonic())
        # by UUID: when its energy counter was last read, or could have been
        self._energy_read: dict[str, float] = {}
        self._events = EventWatch()
        self._handles: list[driver.Handle] = []
        # by UUID: the call that hangs, and its name
        self._hanging: dict[str, tuple[Future[Any], str]] = {}
        self._has_hung = False
        # set by run()
        self._count: int
        # as reported since the inventory
        self._reported: list[Gpu] = []

    def run(self) -> None:
        """Raises DriverProblem and BrokenPipeError."""
        version = self._wait_for(self._driver.open)
        self._count = self._wait_for(self._driver.count)
        if self._count == 0:
            raise DriverProblem(no_gpu(self._driver.files))
        self._find(version)
        self._poll()
        self._follow()

    # -- inventory ----------------------------------------------------------------------------------------------------------

    def _wait_for(self, call: Callable[[], _Answer]) -> _Answer:
        """Wait for this result without a deadline: nothing works without it."""
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            self._wait_until_it_returns(hang)
            answer: _Answer = hang.call.result()
            return answer

    def _wait_until_it_returns(self, hang: CallHangs) -> None:
        report(hangs(self._driver.calling))
        while not wait([hang.call], self._options.poll_seconds).done:
            report(messages.Alive())

    def _find(self, version: str) -> None:
        unnamed, lost = self._describe()
        by_bus_id = {handle.gpu.pci_bus_id: handle.gpu.uuid for handle in self._handles if handle.gpu.pci_bus_id}
        unnamed += self._driver.files.unlisted(by_bus_id) if not unnamed and not lost else []
        ports = {handle.gpu.uuid: self._ports_of(handle, by_bus_id) for handle in self._handles}
        sees_switches = self._driver.sees_switches()
        for handle in self._handles:
            handle.is_on_switches = sees_switches or ports[handle.gpu.uuid].to_switches > 0
        ancestors = self._ancestors()
        self._wait_for(self._events.open)
        self._settling = Settling(time.monotonic())
        self._register_missing()
        gpus = [handle.gpu for handle in self._handles]
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
            reason = GpuReason.DRIVER_HANGS if hanging == len(unnamed) else GpuReason.DRIVER_FAILED
            raise DriverProblem(messages.Problem(reason, "; ".join(unnamed)))
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
            due = self._settling.next_due()
            wake_at = poll_at if due is None else min(poll_at, due)
            if self._events.happened.wait(max(0.0, wake_at - time.monotonic())):
                if self._report_events():
                    poll_at = min(poll_at, polled_at + _MIN_POLL_SECONDS)
                time.sleep(_GATHER_SECONDS)
            self._read_again(self._settling.take_due(time.monotonic()))
            if time.monotonic() >= poll_at:
                self._poll()
                polled_at = time.monotonic()
                poll_at = polled_at + self._options.poll_seconds

    def _report_events(self) -> bool:
        """Also reads the GPUs that have a new Xid. Returns whether all should be read now."""
        counts, now = self._events.take(), time.monotonic()
        to_read = set()
        for event, count in counts.items():
            if event.kind == XID:
                report(messages.Xid(event.uuid, event.data, count, event.place))
                if self._settling.seen(event.uuid, event.data, now):
                    to_read.add(event.uuid)
            elif event.kind == DOUBLE_BIT_ECC:
                report(messages.EccError(event.uuid))
        self._read_again(to_read)
        return any(event == READ_GPUS or event.kind == DOUBLE_BIT_ECC for event in counts)

    def _read_again(self, uuids: Collection[str]) -> None:
        handles = [handle for handle in self._handles if handle.gpu.uuid in uuids]
        if handles:
            report(messages.Readings(self._readings(handles)))

    def _readings(self, handles: Iterable[driver.Handle]) -> dict[str, Reading]:
        return {handle.gpu.uuid: self._reading(handle) for handle in handles}

    def _reading(self, handle: driver.Handle) -> Reading:
        uuid, now = handle.gpu.uuid, time.monotonic()
        unsettled = self._settling.unsettled(uuid, now)
        with_energy = self._is_energy_due(uuid, now)
        is_first = uuid not in self._energy_read
        read = self._call_for(handle, partial(self._driver.reading, handle, with_energy=with_energy, is_first=is_first))
        if (with_energy or is_first) and read is not None:
            self._energy_read[uuid] = now
        return replace(read or Reading(hung_call=self._hanging[uuid][1]), unsettled=unsettled)

    def _is_energy_due(self, uuid: str, now: float) -> bool:
        seconds = self._inbox.orders.energy.get(uuid)
        return seconds is not None and now - self._energy_read.get(uuid, -seconds) >= seconds

    def _poll(self) -> None:
        self._register_missing()
        readings = self._readings(self._handles)
        self._report_descriptions()
        report(messages.Readings(readings))
        try:
            is_stale = any(handle.is_stale for handle in self._handles)
            if self._calls.do(self._driver.count) != self._count or is_stale:
                report(messages.Changed())
        except CallHangs as hang:
            self._wait_until_it_returns(hang)
            # a new session finds events that were missed meanwhile
            report(messages.Changed())

    def _report_descriptions(self) -> None:
        """Before the readings: a GPU that has just entered MIG mode is never listed whole with a new reading."""
        gpus = [replace(handle.gpu, not_supported=self._lacking(handle.gpu.uuid)) for handle in self._handles]
        if gpus != self._reported:
            report(messages.Described(gpus))
            self._reported = gpus

    def _lacking(self, uuid: str) -> tuple[str, ...]:
        """Features that turned out to be missing: they show only when used."""
        has_no_events = uuid in self._events.tried and not self._events.reports(uuid)
        return tuple(sorted([*self._driver.not_supported(uuid), *(["events"] if has_no_events else [])]))

    def _call_for(self, handle: driver.Handle, call: Callable[[], _Answer]) -> _Answer | None:
        """None if it hangs; then the GPU is not called again before that call returns."""
        uuid = handle.gpu.uuid
        if uuid in self._hanging:
            if not self._hanging[uuid][0].done():
                return None
            del self._hanging[uuid]
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            self._has_hung = True
            self._hanging[uuid] = (hang.call, handle.calling or self._driver.calling)
            # with many hanging GPUs this takes minutes
            report(messages.Alive())
            return None


if __name__ == "__main__":
    main()
