"""Wakes readers of devices when the kernel reports a device: netlink's kobject uevents, as udevd gets them.

A pod also gets them in its own network namespace, without any capability. The content of a report is not used: sysfs is read
after each.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Self

from nodedevice_common.log_once import LogOnce

log = logging.getLogger(__name__)

# linux/netlink.h; Python has no name for it
_NETLINK_KOBJECT_UEVENT = 15
_FROM_KERNEL = 1
_MAX_BYTES = 16384
_RETRY_SECONDS = 30.0
_NOT_PERMITTED = "the kernel's device events are not permitted here; polling sysfs every 30 s instead"


def concerns_devices(message: bytes) -> bool:
    """Whether a report is about a device file or a USB device; most are about neither, such as power supplies."""
    return b"\0DEVNAME=" in message or b"\0SUBSYSTEM=usb" in message


class Uevents:
    """Calls `wake` for each report about devices. Use as a context manager inside a running event loop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._socket: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._problems = LogOnce(log)

    def __enter__(self) -> Self:
        self._listen()
        return self

    def _listen(self) -> None:
        """Listen, or retry later: descriptors may have run out."""
        loop = asyncio.get_running_loop()
        try:
            self._socket = _bound()
        except OSError as error:
            self._problems.report(_NOT_PERMITTED, str(error))
            self._retry = loop.call_later(_RETRY_SECONDS, self._listen)
            return
        loop.add_reader(self._socket.fileno(), self._read)
        if self._problems.report(_NOT_PERMITTED, ""):
            # for events before the socket was open
            self._wake()

    def __exit__(self, *_: object) -> None:
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _read(self) -> None:
        assert self._socket is not None
        try:
            while True:
                message, (sender, _) = self._socket.recvfrom(_MAX_BYTES)
                # 0 is the kernel; a process is not believed
                if sender == 0 and concerns_devices(message):
                    self._wake()
        except BlockingIOError:
            return
        except OSError:
            # more reports than the socket can hold: some were lost
            self._wake()


def _bound() -> socket.socket:
    made = socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_KOBJECT_UEVENT
    )
    try:
        made.bind((0, _FROM_KERNEL))
    except OSError:
        made.close()
        raise
    return made
