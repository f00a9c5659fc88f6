"""The driver's events, waited for in a thread of their own and counted until somebody takes them: a storm stays a few numbers."""

import ctypes
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from nodedevice_agent.plugins.nvml.driver import Handle

XID = pynvml.nvmlEventTypeXidCriticalError
DOUBLE_BIT_ECC = pynvml.nvmlEventTypeDoubleBitEccError
# say only that the GPUs have to be looked at
_LOOK = pynvml.nvmlEventTypeGpuUnavailableError | pynvml.nvmlEventTypeGpuRecoveryAction
_WANTED = XID | DOUBLE_BIT_ECC | _LOOK
_WAIT_MS = 1000
_AFTER_ERROR_SECONDS = 1.0


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
    """happened: set when there is something to take."""

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._lock = threading.Lock()
        self._taken = Taken()
        self._uuids: list[tuple[Any, str]] = []
        self._set: Any = None
        self.not_offered_by: list[str] = []

    def open(self) -> None:
        """Some virtual machines have no events; then no GPU offers any."""
        with suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()

    def register(self, handle: Handle) -> None:
        """This GPU's events too, as many kinds as it has."""
        if self._set is None:
            self.not_offered_by.append(handle.gpu.uuid)
            return
        handle.calling = "nvmlDeviceRegisterEvents"
        try:
            offered = pynvml.nvmlDeviceGetSupportedEventTypes(handle.nvml)
            pynvml.nvmlDeviceRegisterEvents(handle.nvml, offered & _WANTED, self._set)
        except pynvml.NVMLError:
            self.not_offered_by.append(handle.gpu.uuid)
        else:
            self._uuids.append((_key(handle.nvml), handle.gpu.uuid))
        finally:
            handle.calling = ""

    def start(self) -> None:
        """Wait for events from now on."""
        if self._uuids:
            threading.Thread(target=self._wait, daemon=True, name="nvml events").start()

    def take(self) -> Taken:
        """What has happened, once."""
        with self._lock:
            self.happened.clear()
            taken, self._taken = self._taken, Taken()
        return taken

    def _wait(self) -> None:
        by_key = dict(self._uuids)
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    continue
                # one GPU that is lost fails the wait for all, again and again
                self._count(None)
                time.sleep(_AFTER_ERROR_SECONDS)
                continue
            self._count(Event(by_key.get(_key(event.device), ""), int(event.eventType), int(event.eventData)))

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
