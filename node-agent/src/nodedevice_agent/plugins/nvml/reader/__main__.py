"""The process that reads the driver: `python -m ….reader.program OPTIONS`, one message a line on its output.

It looks at everything once, waits for the driver's events and looks again every few seconds. It ends when whoever started it is
gone and when the driver does not work. That the GPUs are no longer those that it began with it only tells: NVML shows what came
to who starts anew, and that is another reader. It keeps nothing and decides nothing.
"""

import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from nodedevice_agent.plugins.nvml.health.health import Reading
from nodedevice_agent.plugins.nvml.links import Ports
from nodedevice_agent.plugins.nvml.reader import driver
from nodedevice_agent.plugins.nvml.reader.calls import CallHangs, Calls, Job
from nodedevice_agent.plugins.nvml.reader.driver import (
    MAX_LINKS,
    SWITCH,
    Driver,
    DriverProblem,
    GpuLost,
    GpuMute,
    Handle,
)
from nodedevice_agent.plugins.nvml.reader.events import DOUBLE_BIT_ECC, XID, EventWatch
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    EccError,
    Found,
    FoundAncestor,
    FoundGpu,
    Lacking,
    Message,
    Problem,
    ReaderOptions,
    Readings,
    Xid,
    encode,
)

_Answer = TypeVar("_Answer")

# Events that come closer together than this are told together.
_GATHER_SECONDS = 0.1
# However much happens, GPUs are not looked at more often.
_LEAST_PAUSE_SECONDS = 1.0


def main() -> None:
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        options = msgspec.json.decode(sys.argv[1], type=ReaderOptions)
        Reader(options).run()
    except DriverProblem as error:
        tell(error.problem)
    except BrokenPipeError:
        pass
    except BaseException:
        # said by hand: an orderly end is not to be had
        traceback.print_exc()
        os._exit(1)
    # threads that hang in the driver would hold up an orderly end
    os._exit(0)


def _end_with_starter() -> None:
    # not by sys.stdin, whose lock an interpreter that ends would find held
    while os.read(0, 4096):
        pass
    os._exit(0)


def tell(message: Message) -> None:
    """Raises BrokenPipeError once nobody listens any more."""
    sys.stdout.buffer.write(encode(message))
    sys.stdout.buffer.flush()


class Reader:
    """One start of NVML."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._calls = Calls(options.call_seconds)
        self._driver = Driver(options.host_root)
        self._events = EventWatch()
        self._handles: list[Handle] = []
        # by UUID: the call that has not come back, and what it is
        self._hanging: dict[str, tuple[Job[Any], str]] = {}
        # whether any has, ever
        self._has_hung = False
        self._count = 0
        self._lacking: Lacking | None = None

    def run(self) -> None:
        """Raises DriverProblem and BrokenPipeError."""
        version = self._patiently(self._driver.open)
        self._count = self._patiently(self._driver.count)
        if self._count == 0:
            raise DriverProblem(driver.no_gpu())
        self._find(version)
        self._look()
        self._follow()

    # -- once ----------------------------------------------------------------------------------------------------------

    def _patiently(self, call: Callable[[], _Answer]) -> _Answer:
        """Without this answer there is nothing to do but wait for it."""
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            tell(driver.hangs(self._driver.calling))
            while not hang.job.wait(self._options.poll_seconds):
                tell(Alive())
            answer: _Answer = hang.job.result()
            return answer

    def _find(self, version: str) -> None:
        unnamed, lost = self._describe()
        ports = self._ports()
        ancestors = self._ancestors()
        self._register()
        gpus = [FoundGpu(handle.gpu, ports[handle.gpu.uuid]) for handle in self._handles]
        tell(Found(version, gpus, ancestors, unnamed, lost, self._has_hung))

    def _describe(self) -> tuple[list[str], int]:
        """Why some GPUs cannot be named, and how many are lost."""
        unnamed, hanging, lost = [], 0, 0
        for index in range(self._count):
            try:
                handle = self._calls.do(partial(self._driver.describe, index))
                if any(handle.gpu.uuid == other.gpu.uuid for other in self._handles):
                    raise GpuMute(f"its UUID is another's too, {handle.gpu.uuid}")
                self._handles.append(handle)
            except CallHangs:
                unnamed.append(f"GPU {index} does not answer: {self._driver.calling} does not come back")
                hanging += 1
                tell(Alive())
            except GpuLost:
                lost += 1
            except GpuMute as error:
                unnamed.append(f"GPU {index} cannot be named: {error}")
        if not self._handles and unnamed:
            reason = driver.HANGS if hanging == len(unnamed) else driver.FAILED
            raise DriverProblem(Problem(reason, "; ".join(unnamed)))
        return unnamed, lost

    def _ports(self) -> dict[str, Ports]:
        by_bus_id = {handle.gpu.pci_bus_id: handle.gpu.uuid for handle in self._handles if handle.gpu.pci_bus_id}
        return {handle.gpu.uuid: self._ports_of(handle, by_bus_id) for handle in self._handles}

    def _ports_of(self, handle: Handle, uuid_by_bus_id: Mapping[str, str]) -> Ports:
        """A link that is dead says nothing of those after it: all are asked."""
        asked = (partial(self._driver.link_end, handle, link, uuid_by_bus_id) for link in range(MAX_LINKS))
        ends = Counter(filter(None, (self._of_one(handle, call) for call in asked)))
        to_switches = ends.pop(SWITCH, 0)
        return Ports(dict(ends), to_switches)

    def _ancestors(self) -> list[FoundAncestor]:
        told = []
        in_order = sorted(self._handles, key=lambda handle: handle.gpu.uuid)
        for index, one in enumerate(in_order):
            for other in in_order[index + 1 :]:
                level = self._of_one(one, partial(self._driver.ancestor, one, other))
                if level is not None:
                    told.append(FoundAncestor(one.gpu.uuid, other.gpu.uuid, level))
        return told

    def _register(self) -> None:
        self._patiently(self._events.open)
        self._register_rest()

    def _register_rest(self) -> None:
        """Also those whose calls hung when it was tried before: else their Xids were never heard."""
        for handle in self._handles:
            if not self._events.was_asked(handle.gpu.uuid):
                self._of_one(handle, partial(self._events.register, handle))
        self._events.start()

    # -- ever after ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        looked_at = time.monotonic()
        look_at = looked_at + self._options.poll_seconds
        while True:
            if self._events.happened.wait(max(0.0, look_at - time.monotonic())):
                if self._tell_events():
                    look_at = min(look_at, looked_at + _LEAST_PAUSE_SECONDS)
                time.sleep(_GATHER_SECONDS)
            if time.monotonic() >= look_at:
                self._look()
                looked_at = time.monotonic()
                look_at = looked_at + self._options.poll_seconds

    def _tell_events(self) -> bool:
        """Returns whether the GPUs should be looked at."""
        taken = self._events.take()
        for event, count in taken.counts.items():
            if event.kind == XID:
                tell(Xid(event.uuid, event.data, count))
            elif event.kind == DOUBLE_BIT_ECC:
                tell(EccError(event.uuid))
        return taken.look

    def _look(self) -> None:
        self._register_rest()
        readings = {}
        for handle in self._handles:
            uuid = handle.gpu.uuid
            reading = self._of_one(handle, partial(self._driver.reading, handle))
            readings[uuid] = reading or Reading(hung_call=self._hanging[uuid][1])
        tell(Readings(readings))
        self._tell_lacking()
        try:
            is_stale = any(handle.is_stale for handle in self._handles)
            if self._calls.do(self._driver.count) != self._count or is_stale:
                tell(Changed())
        except CallHangs as hang:
            tell(driver.hangs(self._driver.calling))
            while not hang.job.wait(self._options.poll_seconds):
                tell(Alive())
            # what was missed meanwhile is found by beginning anew
            tell(Changed())

    def _tell_lacking(self) -> None:
        """What is not supported shows when it is asked for, so not before the first look."""
        by_uuid = {}
        for handle in self._handles:
            uuid = handle.gpu.uuid
            is_deaf = self._events.was_asked(uuid) and not self._events.tells(uuid)
            by_uuid[uuid] = tuple(sorted([*self._driver.not_supported(uuid), *(["events"] if is_deaf else [])]))
        lacking = Lacking(by_uuid)
        if lacking != self._lacking:
            tell(lacking)
            self._lacking = lacking

    def _of_one(self, handle: Handle, call: Callable[[], _Answer]) -> _Answer | None:
        """None when it hangs; then this GPU is not asked again before that call has come back."""
        uuid = handle.gpu.uuid
        if uuid in self._hanging:
            if not self._hanging[uuid][0].is_done:
                return None
            del self._hanging[uuid]
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            self._has_hung = True
            self._hanging[uuid] = (hang.job, handle.calling or self._driver.calling)
            # so many GPUs may hang one after the other that this takes minutes
            tell(Alive())
            return None


if __name__ == "__main__":
    main()
