"""Files of the made-up host that cannot be read: the system answers EIO, as of a broken device.

An unrelated file is of no stick and no card, and a scan of every configuration comes by one of them.
"""

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

# what finds files, and what reads them
_CALLS = ("listdir", "readlink", "scandir", "stat", "lstat")
# each is there only while it cannot be read
UNRELATED = (
    "dev/ttyUSB77",
    "dev/ttyACM77",
    "dev/hidraw77",
    "dev/video77",
    "dev/sdz",
    "dev/serial/by-id/usb-broken-if00-port0",
    "dev/bus/usb/001/099",
    "sys/dev/char/188:77",
    "sys/dev/block/8:240",
    "sys/bus/usb/devices/2-7",
)


class Faults:
    """paths: those that cannot be read, as the product asks for them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.paths: set[str] = set()

    @contextmanager
    def injected(self) -> Iterator[None]:
        """While this lasts."""
        with ExitStack() as stack:
            for name in _CALLS:
                stack.enter_context(mock.patch.object(os, name, self._failing(getattr(os, name))))
            stack.enter_context(mock.patch.object(builtins, "open", self._failing(open)))
            yield

    def add_unrelated(self, name: str) -> None:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if str(path) not in self.paths:
            path.symlink_to("/dev/null")
            self.paths.add(str(path))

    def remove_unrelated(self, name: str) -> None:
        path = self._root / name
        if str(path) in self.paths:
            self.paths.remove(str(path))
            path.unlink()

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        paths = self.paths

        def call(path: Any = ".", *args: Any, **options: Any) -> Any:
            if path in paths:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return real(path, *args, **options)

        return call
