"""Looks at device files of the host, in threads of its own: a file system that hangs harms nobody but who asks for its files.

What hangs in a thread cannot be called back. So whoever asks for the same path meanwhile is refused at once, there is a bound on
threads, and they are daemons: they take none of the agent's other threads, and do not hold up its end.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri.host_devices import HostNode, look_up

# A runtime creates one container at a time: there are more only where file systems hang.
MAX_LOOKS = 8

Nodes = Mapping[str, tuple[HostNode, ...]]


class HostLooks:
    """Use in the event loop. One for all connections to the runtime, as what hangs outlives them."""

    def __init__(self) -> None:
        self._looks: set[_Look] = set()

    async def look_up(self, host_paths: Iterable[str]) -> Nodes:
        """The device files at each path. Waits as long as the file system does; the caller sets the bound.

        Raises InjectionRefused that names the path.
        """
        paths = sorted(set(host_paths))
        if not paths:
            return {}
        self._refuse_hanging(paths)
        look = _Look(paths)
        self._looks.add(look)
        try:
            look.start()
            return await look.answer
        finally:
            look.is_given_up = True

    def _refuse_hanging(self, paths: Sequence[str]) -> None:
        self._looks = {look for look in self._looks if not look.is_over}
        hanging = {look.path for look in self._looks}
        for path in paths:
            if path in hanging:
                raise InjectionRefused(
                    f"device {path} of the host is still being looked at: the file system that it is on does not answer; free or "
                    "unmount that, or mend the device plugin that names it"
                )
        if len(self._looks) >= MAX_LOOKS:
            raise InjectionRefused(
                f"{MAX_LOOKS} looks at device files of the host hang, one of them at {min(hanging)}: free or unmount the file "
                "systems that they are on"
            )


class _Look:
    """At one path after the other, in a thread. path: the one it is at."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.path = paths[0]
        self.is_given_up = self.is_over = False
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Nodes] = self._loop.create_future()

    def start(self) -> None:
        threading.Thread(target=self._run, name="host-look", daemon=True).start()

    def _run(self) -> None:
        found: dict[str, tuple[HostNode, ...]] = {}
        error: Exception | None = None
        try:
            for path in self._paths:
                if self.is_given_up:
                    break
                self.path = path
                found[path] = look_up(path)
        except Exception as exc:
            error = exc
        self.is_over = True
        # closed: the agent has ended meanwhile
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, found, error)

    def _settle(self, found: Nodes, error: Exception | None) -> None:
        if self.answer.done():
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(found)
