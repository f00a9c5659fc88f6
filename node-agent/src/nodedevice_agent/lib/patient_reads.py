"""Reads of the host's files with a deadline: the kernel blocks a reader for as long as the device behind a file hangs.

`patiently` runs a function in a thread, and the function reads by `ask`. When a call hangs, the thread is abandoned and the
function runs again without that call: it raises OSError (ETIMEDOUT), like any file that cannot be read. The call is not repeated
before it has returned. So a device that hangs costs one thread, and a scan of all devices takes about a second at most. The
function must not hold a lock during `ask`, such as functools.cached_property's: a thread that hangs would keep it. The function
repeats the changes it had already made.
"""

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

# calls that hang, of this process; each has a thread
MAX_HANGING: Final = 64
# of one scan: half of the remaining time is for the next call that hangs
_PATIENCE_SECONDS: Final = 0.8
_LEAST_PATIENCE_SECONDS: Final = 0.02
# After a stall of the whole machine the call has this many turns to go on.
_CHECKS: Final = 4
HANGS: Final = "it does not respond: its device or file system hangs"

_of_thread = threading.local()
# by path: the attempt whose thread waits for it
_hanging: dict[str, "_Attempt[Any]"] = {}


class NoThread(OSError):
    """No thread can be started now, or too many calls hang already."""


class _Abandoned(BaseException):
    """The call has returned, but another thread has replaced this one."""


def ask(call: Callable[..., T], path: str, *arguments: Any) -> T:
    """Make a system call about a path. Raises the call's errors, and OSError (ETIMEDOUT) if it hangs.

    Outside of `patiently` the call has no deadline, but a call that already hangs is not repeated.
    """
    if path in _hanging:
        raise OSError(errno.ETIMEDOUT, HANGS, path)
    attempt: _Attempt[Any] | None = getattr(_of_thread, "attempt", None)
    if attempt is None:
        return call(path, *arguments)
    attempt.enter(path)
    try:
        return call(path, *arguments)
    finally:
        attempt.leave(path)


def patiently(read: Callable[[], T]) -> T:
    """Run a function although some of its calls may hang. It may run several times, one after the other.

    Raises the function's errors, and NoThread (EAGAIN).
    """
    # imported here: the process that reads GPUs asks, and has no threads
    from nodedevice_common import threads

    left = _PATIENCE_SECONDS
    while True:
        if len(_hanging) >= MAX_HANGING:
            first = next(iter(_hanging.copy()), "")
            problem = f"{MAX_HANGING} reads of files of the host hang, one of them at {first}"
            raise NoThread(errno.EAGAIN, f"{problem}: disconnect its device, or unmount it")
        attempt = _Attempt(read)
        try:
            threads.start(attempt.run, "files")
        except OSError as exc:
            raise NoThread(exc.errno, exc.strerror) from exc
        patience = max(_LEAST_PATIENCE_SECONDS, left / 2)
        if attempt.ends_within(patience):
            return attempt.result.result()
        left -= patience


def with_deadlines(read: Callable[[], T]) -> T:
    """Like patiently(), but if no thread can be started, the calls run without a deadline.

    A caller in the event loop waits for less than a second, and once for each call that hangs.
    """
    try:
        return patiently(read)
    except NoThread:
        return read()


def complete(result: Future[T], read: Callable[[], T]) -> None:
    """Run the function, and set its result or error."""
    try:
        result.set_result(read())
    except BaseException as exc:
        result.set_exception(exc)


class _Attempt(Generic[T]):
    """One run in a thread of its own. path: of the call that is being made, "" between calls."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self.result: Future[T] = Future()
        self._path = ""
        self._calls = 0
        self._is_abandoned = False

    def run(self) -> None:
        _of_thread.attempt = self
        complete(self.result, self._read)

    def enter(self, path: str) -> None:
        self._calls += 1
        self._path = path

    def leave(self, path: str) -> None:
        with self._lock:
            self._path = ""
            if self._is_abandoned:
                _hanging.pop(path, None)
                raise _Abandoned

    def ends_within(self, patience: float) -> bool:
        """False if a single call took longer, and was abandoned; computing is not limited."""
        calls, checks = 0, 0
        while not wait([self.result], patience / _CHECKS).done:
            checks = checks + 1 if self._calls == calls and self._path else 0
            calls = self._calls
            if checks >= _CHECKS and self._abandon(calls):
                return False
        return True

    def _abandon(self, calls: int) -> bool:
        """Unless the call has returned meanwhile."""
        with self._lock:
            if not self._path or self._calls != calls:
                return False
            self._is_abandoned = True
            _hanging[self._path] = self
            return True
