"""The driver's events, waited for in a thread of their own and counted until somebody takes them: a storm stays a few numbers."""

import ctypes
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from nodedevice_agent.plugins.nvml.reader.driver import Handle

XID = pynvml.nvmlEventTypeXidCriticalError
DOUBLE_BIT_ECC = pynvml.nvmlEventTypeDoubleBitEccError
# say only that the GPUs have to be looked at
_LOOK = pynvml.nvmlEventTypeGpuUnavailableError | pynvml.nvmlEventTypeGpuRecoveryAction
_WANTED = XID | DOUBLE_BIT_ECC | _LOOK
_WAIT_MS = 1000
_AFTER_ERROR_SECONDS = 1.0
# of a driver that cannot be waited for, ever
_WITHOUT = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class Event:
    """kind: XID or DOUBLE_BIT_ECC. data: the Xid."""

    uuid: str
    kind: int
    data: int


@dataclass(slots=True)
class Taken:
    """What has happened since the last time. look: the GPUs should be looked at."""

    counts: Counter[Event] = field(default_factory=Counter)
    look: bool = False


class EventWatch:
    """happened: set when there is something to take.

    One thread opens, registers and starts; a registration that hangs may come back at any time later.
    """

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._lock = threading.Lock()
        self._taken = Taken()
        self._uuids: dict[Any, str] = {}
        self._set: Any = None
        # UUIDs of GPUs that were asked for events, and of those that tell any
        self._asked: set[str] = set()
        self._telling: set[str] = set()
        self._is_waiting = False
        self._is_deaf = False

    def open(self) -> None:
        """Some virtual machines have no events; then no GPU offers any."""
        with suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()

    def register(self, handle: Handle) -> None:
        """This GPU's events too, as many kinds as it has."""
        uuid = handle.gpu.uuid
        # first: an event may be there before the call is back
        self._uuids[_key(handle.nvml)] = uuid
        handle.calling = "nvmlDeviceRegisterEvents"
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                offered = pynvml.nvmlDeviceGetSupportedEventTypes(handle.nvml)
                pynvml.nvmlDeviceRegisterEvents(handle.nvml, offered & _WANTED, self._set)
                self._telling.add(uuid)
        handle.calling = ""
        self._asked.add(uuid)

    def was_asked(self, uuid: str) -> bool:
        """Whether it is known if this GPU tells events."""
        return uuid in self._asked

    def tells(self, uuid: str) -> bool:
        """Whether what happens to this GPU is told at once."""
        return uuid in self._telling and not self._is_deaf

    def start(self) -> None:
        """Wait for events from now on, as soon as there is a GPU that tells any."""
        if self._telling and not self._is_waiting:
            self._is_waiting = True
            threading.Thread(target=self._wait, daemon=True, name="nvml events").start()

    def take(self) -> Taken:
        """What has happened, once."""
        with self._lock:
            self.happened.clear()
            taken, self._taken = self._taken, Taken()
        return taken

    def _wait(self) -> None:
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    continue
                if error.value in _WITHOUT:
                    self._is_deaf = True
                    self._count(None)
                    return
                # one GPU that is lost fails the wait for all, again and again
                self._count(None)
                time.sleep(_AFTER_ERROR_SECONDS)
                continue
            self._count(Event(self._uuids.get(_key(event.device), ""), int(event.eventType), int(event.eventData)))

    def _count(self, event: Event | None) -> None:
        with self._lock:
            if event is None or event.kind & _LOOK:
                self._taken.look = True
            else:
                self._taken.counts[event] += 1
            self.happened.set()


def _key(device: Any) -> Any:
    """A device handle's address: handles are pointers, and two of one GPU are different objects."""
    return ctypes.cast(device, ctypes.c_void_p).value
