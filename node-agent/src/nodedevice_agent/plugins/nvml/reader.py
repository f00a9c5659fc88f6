"""The process that reads the driver: `python -m nodedevice_agent.plugins.nvml.reader OPTIONS`, one message a line on its output.

It looks at everything once, waits for the driver's events and looks again every few seconds. It ends when whoever started it is
gone and when the driver does not work. That the GPUs are no longer those that it began with it only tells: NVML shows what came
to who starts anew, and that is another reader. It keeps nothing and decides nothing.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from nodedevice_agent.plugins.core.nvml.health import Reading
from nodedevice_agent.plugins.core.nvml.links import Ports
from nodedevice_agent.plugins.nvml import driver_problems
from nodedevice_agent.plugins.nvml.calls import CallHangs, Calls, Job
from nodedevice_agent.plugins.nvml.driver import Driver, GpuLost, Handle
from nodedevice_agent.plugins.nvml.driver_problems import DriverProblem
from nodedevice_agent.plugins.nvml.events import DOUBLE_BIT_ECC, XID, EventWatch
from nodedevice_agent.plugins.nvml.messages import (
    Alive,
    Changed,
    EccError,
    Found,
    FoundAncestor,
    FoundGpu,
    Message,
    Note,
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
    options = msgspec.json.decode(sys.argv[1], type=ReaderOptions)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        Reader(options).run()
    except DriverProblem as error:
        tell(error.problem)
    except BrokenPipeError:
        pass
    # threads that hang in the driver would hold up an orderly end
    os._exit(0)


def _end_with_starter() -> None:
    sys.stdin.buffer.read()
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
        self._hanging: dict[str, tuple[Job[object], str]] = {}
        self._count = 0
        # some GPU has another UUID than when it was found
        self._has_changed = False

    def run(self) -> None:
        """Raises DriverProblem and BrokenPipeError."""
        version = self._patiently(self._driver.open)
        self._count = self._patiently(self._driver.count)
        if self._count == 0:
            raise DriverProblem(driver_problems.no_gpu())
        self._find(version)
        self._events.start()
        self._look()
        self._follow()

    # -- once ----------------------------------------------------------------------------------------------------------

    def _patiently(self, call: Callable[[], _Answer]) -> _Answer:
        """Without this answer there is nothing to do but wait for it."""
        try:
            return self._calls.do(call)
        except CallHangs as hang:
            tell(driver_problems.hangs(self._driver.calling))
            while not hang.job.wait(self._options.poll_seconds):
                tell(Alive())
            return hang.job.result()  # type: ignore[return-value]  # it is the same call

    def _find(self, version: str) -> None:
        unnamed, lost = [], 0
        for index in range(self._count):
            try:
                self._handles.append(self._calls.do(partial(self._driver.describe, index)))
            except CallHangs:
                unnamed.append(f"GPU {index} does not answer: {self._driver.calling} does not come back")
                tell(Alive())
            except GpuLost:
                lost += 1
            except DriverProblem as error:
                unnamed.append(f"GPU {index} cannot be named: {error.problem.message}")
        if not self._handles and unnamed:
            raise DriverProblem(Problem(driver_problems.FAILED, "; ".join(unnamed)))
        ports = self._ports()
        ancestors = self._ancestors()
        self._register()
        gpus = [FoundGpu(handle.gpu, ports.get(handle.gpu.uuid, Ports())) for handle in self._handles]
        tell(Found(version, gpus, ancestors, unnamed, lost, sorted(self._driver.goes_without)))
        if self._events.not_offered_by:
            uuids = ", ".join(self._events.not_offered_by)
            tell(Note(f"no events of {uuids}: only what is looked at every {self._options.poll_seconds:g} s is seen"))

    def _ports(self) -> dict[str, Ports]:
        by_bus_id = {handle.gpu.pci_bus_id: handle.gpu.uuid for handle in self._handles if handle.gpu.pci_bus_id}
        ports = {}
        for handle in self._handles:
            found = self._of_one(handle, partial(self._driver.ports, handle, by_bus_id))
            if found is not None:
                ports[handle.gpu.uuid] = found
        return ports

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
        for handle in self._handles:
            self._of_one(handle, partial(self._events.register, handle))

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
        readings = {}
        for handle in self._handles:
            uuid = handle.gpu.uuid
            reading = self._of_one(handle, partial(self._reading, handle))
            readings[uuid] = reading or Reading(hung_call=self._hanging[uuid][1])
        tell(Readings(readings))
        try:
            if self._calls.do(self._driver.count) != self._count or self._has_changed:
                tell(Changed())
        except CallHangs as hang:
            tell(driver_problems.hangs(self._driver.calling))
            while not hang.job.wait(self._options.poll_seconds):
                tell(Alive())
            # what was missed meanwhile is found by beginning anew
            tell(Changed())

    def _reading(self, handle: Handle) -> Reading:
        """In the calls' thread, so it tells nothing itself."""
        uuid = self._driver.uuid(handle)
        if uuid and uuid != handle.gpu.uuid:
            # nobody can use what has another name by now
            self._has_changed = True
            return Reading(is_lost=True)
        return self._driver.reading(handle)

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
            self._hanging[uuid] = (hang.job, handle.calling or self._driver.calling)
            # so many GPUs may hang one after the other that this takes minutes
            tell(Alive())
            return None


if __name__ == "__main__":
    main()
