"""The driver's events, received in a thread of their own and counted until they are taken: a storm becomes a few numbers."""

import ctypes
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pynvml
from msgspec import Struct

from nodedevice_agent.plugins.nvml.health import Place
from nodedevice_agent.plugins.nvml.reader.driver import Handle

XID = pynvml.nvmlEventTypeXidCriticalError
DOUBLE_BIT_ECC = pynvml.nvmlEventTypeDoubleBitEccError
# see READ_GPUS
_POLL = (
    pynvml.nvmlEventTypeGpuUnavailableError | pynvml.nvmlEventTypeGpuRecoveryAction | pynvml.nvmlEventMigConfigChange
)
_WANTED = XID | DOUBLE_BIT_ECC | _POLL
_WAIT_MS = 1000
# in an event, in place of the number of an instance
_NO_INSTANCE = 0xFFFFFFFF
_AFTER_ERROR_SECONDS = 1.0
# of a driver without events
_WITHOUT = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


class GpuEvent(Struct, frozen=True):
    """kind: XID or DOUBLE_BIT_ECC. data: the Xid. place: the MIG instance that the driver names."""

    uuid: str
    kind: int
    data: int
    place: Place | None = None


# stands for all events that mean only that the GPUs have to be read
READ_GPUS = GpuEvent("", 0, 0)


class EventWatch:
    """happened: set when there are events to take.

    One thread opens, registers and starts; a registration that hangs may return at any later time.
    """

    def __init__(self) -> None:
        self.happened = threading.Event()
        self._lock = threading.Lock()
        self._counts: Counter[GpuEvent] = Counter()
        self._uuids: dict[Any, str] = {}
        self._set: Any = None
        # UUIDs of GPUs whose registration was tried, and of GPUs that report events
        self.tried: set[str] = set()
        self._registered: set[str] = set()
        self._is_waiting = False
        self._has_failed = False

    def open(self) -> None:
        """Some virtual machines have no events."""
        with suppress(pynvml.NVMLError):
            self._set = pynvml.nvmlEventSetCreate()

    def register(self, handle: Handle) -> None:
        """Receive this GPU's events of all wanted kinds that it supports."""
        uuid = handle.gpu.uuid
        # first: an event may come before the call returns
        self._uuids[_key(handle.nvml)] = uuid
        handle.calling = "nvmlDeviceRegisterEvents"
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                offered = pynvml.nvmlDeviceGetSupportedEventTypes(handle.nvml)
                pynvml.nvmlDeviceRegisterEvents(handle.nvml, offered & _WANTED, self._set)
                self._registered.add(uuid)
        self.tried.add(uuid)

    def reports(self, uuid: str) -> bool:
        return uuid in self._registered and not self._has_failed

    def start(self) -> None:
        """Receive events from now on, if any GPU reports them."""
        if self._registered and not self._is_waiting:
            self._is_waiting = True
            threading.Thread(target=self._wait, daemon=True, name="nvml events").start()

    def take(self) -> Counter[GpuEvent]:
        with self._lock:
            self.happened.clear()
            counts, self._counts = self._counts, Counter()
        return counts

    def _wait(self) -> None:
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_TIMEOUT:
                    continue
                self._has_failed = error.value in _WITHOUT
                self._count(READ_GPUS)
                if self._has_failed:
                    return
                # one lost GPU fails the wait for all GPUs, again and again
                time.sleep(_AFTER_ERROR_SECONDS)
                continue
            uuid = self._uuids.get(_key(event.device), "")
            self._count(GpuEvent(uuid, int(event.eventType), int(event.eventData), _place(event)))

    def _count(self, event: GpuEvent) -> None:
        with self._lock:
            self._counts[READ_GPUS if event.kind & _POLL else event] += 1
            self.happened.set()


def _place(event: Any) -> Place | None:
    gpu_instance, compute_instance = int(event.gpuInstanceId), int(event.computeInstanceId)
    if gpu_instance == _NO_INSTANCE:
        return None
    return Place(gpu_instance, None if compute_instance == _NO_INSTANCE else compute_instance)


def _key(device: Any) -> Any:
    """The address in a handle: two handles of one GPU are different objects with equal pointers."""
    return ctypes.cast(device, ctypes.c_void_p).value
