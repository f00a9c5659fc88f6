"""Files of the made-up host that cannot be read, as those of a broken device, and a system that reads none at all.

An unrelated file is of no stick and no card, and a scan of every configuration comes by one of them.
"""

import builtins
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

ERRORS = (errno.EIO, errno.ETIMEDOUT, errno.EACCES, errno.ENOMEM)
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
    """paths: those that cannot be read, as the product asks for them. are_all: no file of the host can, for want of descriptors.

    error: with which they fail; a read that hangs fails with ETIMEDOUT.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._trees = tuple(f"{root}/{name}/" for name in ("dev", "sys", "run"))
        self.paths: set[str] = set()
        self.are_all = False
        self.error = errno.EIO

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
        with suppress(FileExistsError):
            os.makedirs(path.parent)
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
            if self.are_all and isinstance(path, str | os.PathLike) and str(path).startswith(self._trees):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            if path in paths:
                raise OSError(self.error, os.strerror(self.error), path)
            return real(path, *args, **options)

        return call
