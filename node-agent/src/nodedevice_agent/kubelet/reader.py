"""Reads the kubelet's checkpoint and pod resources for all subscribers in the agent.

The kubelet writes its checkpoint after each allocation and each device list of a plugin. Following subscribers get it at once. Pod
resources are read a moment later, if a subscriber needs them. A failing subscriber does not affect the others.
Source: kubelet pkg/kubelet/cm/devicemanager, pkg/kubelet/apis/podresources @ 1.37.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from nodedevice_common.log_once import LogOnce
from nodedevice_common.pacing import Backoff
from nodedevice_common.tasks import apart

from nodedevice_agent.checkpoint.long_files import MAX_RESPONSE_BYTES, KubeletFile
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.kubelet.directory import KubeletDirectory, read_file
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesUnavailable, connected
from nodedevice_agent.kubelet.pod_rows import PodRows
from nodedevice_agent.kubelet.readings import NO_DEVICES, CheckpointReading, HealthyDevices, PodReading, Subscriber
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity
from nodedevice_agent.lib.shared_calls import SharedCall

log = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0
# Combines several writes of the file into one reading. The kubelet writes the file before it lists the pod.
_TOGETHER_SECONDS: Final = 0.1
# the pause after a reading, as a multiple of its duration
_REST: Final = 2.0
_UNREAD: Final = (
    f"responses of device plugins in the kubelet's checkpoint are not read: each may have {MAX_RESPONSE_BYTES} bytes; "
    "have the plugins respond with less, such as the name of a CDI device"
)
_MOST_NAMED: Final = 5


class KubeletReader:
    """subscribe() first, then run() until cancelled; an outdated subscriber calls wake(). pods: unfinished pods by UID.

    read: reads the due parts and passes them to all subscribers; read_checkpoint: the checkpoint if it is new. At any time.
    """

    def __init__(self, directory: KubeletDirectory, pods: Mapping[str, Pod]) -> None:
        self.directory = directory
        self._pods = pods
        self._subscribers: list[Subscriber] = []
        self._files = FileReads()
        self._rows = PodRows()
        self.read, self.read_checkpoint = SharedCall(self._read), SharedCall(self._read_checkpoint)
        self._problems = LogOnce(log)
        self._devices = NO_DEVICES
        self._identity: FileIdentity | None = None
        # nothing was read yet
        self._checkpoint = CheckpointReading(None)
        # also False if a subscriber failed on it
        self._is_given = False
        self._pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
        # whether pod resources could not be read, or a subscriber failed on them
        self._is_unanswered = False
        self._changes: Subscription | None = None
        self._is_woken = False

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def wake(self) -> None:
        """Read soon: a subscriber is outdated."""
        self._is_woken = True
        if self._changes is not None:
            self._changes.wake()

    async def run(self) -> None:
        with FileWatcher() as watcher:
            self._changes = watcher.subscribe()
            while True:
                self._follow(self._changes)
                began = self._now()
                await self.read()
                took = self._now() - began
                if await self._happens(self._changes):
                    await self.read_checkpoint()
                    # leaves the interpreter to the event loop for most of the time, however often the kubelet writes
                    await asyncio.sleep(max(_TOGETHER_SECONDS, took * _REST))

    async def _read(self) -> None:
        await self.read_checkpoint()
        self._is_woken = False
        is_outdated = any(subscriber.is_outdated for subscriber in self._subscribers)
        if is_outdated or self._is_unanswered or self._now() >= self._list_due():
            await self._read_pods()

    async def _read_checkpoint(self) -> None:
        before = self._identity, self._checkpoint
        found = await self._new_checkpoint()
        if found is not None and (not self._is_given or (self._identity, found) != before):
            self._checkpoint = found
            self._is_given = self._give("checkpoint", lambda subscriber: subscriber.checkpoint_read(found))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _list_due(self) -> float:
        seconds = min((subscriber.pace.list_seconds for subscriber in self._subscribers), default=math.inf)
        # never due, even if pods were never listed
        return seconds if seconds == math.inf else self._rows.listed_at + seconds

    def _follow(self, changes: Subscription) -> None:
        is_followed = any(subscriber.pace.is_following for subscriber in self._subscribers)
        changes.follow([self.directory.device_plugins] if is_followed else [])

    async def _happens(self, changes: Subscription) -> bool:
        """Wait for a change; False if the next reading is due first."""
        now = self._now()
        if self._is_unanswered or not self._is_given or self._checkpoint.problem:
            due = now + self._pauses.next()
        else:
            self._pauses.reset()
            check_seconds = (subscriber.pace.check_seconds for subscriber in self._subscribers)
            due = min(now + min(check_seconds, default=math.inf), self._list_due())
        while (left := due - self._now()) > 0.0:
            changed, followed = await changes.wait(left), changes.followed
            self._follow(changes)
            # the kubelet may have just created its directory, and written the file before the watch began
            if self._is_woken or self.directory.checkpoint in changed or changes.followed != followed:
                return True
        return False

    async def _new_checkpoint(self) -> CheckpointReading | None:
        """Read the checkpoint; None if all subscribers have the current file."""
        known = self._identity if self._is_given and not self._checkpoint.problem else None
        try:
            identity, found = await self._files.run(
                partial(_file, self.directory.checkpoint, known, self._checkpoint.checkpoint)
            )
        except (CheckpointCorrupt, OSError) as exc:
            self._identity = None
            return CheckpointReading(None, f"cannot be read: {exc.strerror}" if isinstance(exc, OSError) else str(exc))
        if found is None:
            return None
        self._identity = identity
        self._problems.report(_UNREAD, _summed(found.unread), path=str(self.directory.checkpoint))
        return CheckpointReading(found.checkpoint, unread=found.unread, omitted=found.omitted)

    async def _read_pods(self) -> None:
        # later changes outdate them again
        for subscriber in self._subscribers:
            subscriber.is_outdated = False
        self._is_unanswered = True
        found = await self._pod_reading()
        is_taken = self._give("pods", lambda subscriber: subscriber.pods_read(found))
        self._is_unanswered = found.rows is None or not is_taken

    async def _pod_reading(self) -> PodReading:
        now, before = self._now(), self._rows.calls
        lists_devices = any(subscriber.pace.lists_devices for subscriber in self._subscribers)
        devices_problem = problem = ""
        devices = None
        try:
            async with connected(self.directory.pod_resources) as kubelet:
                if now >= self._list_due():
                    self._rows.is_list_due = True
                known = self._checkpoint.checkpoint
                await self._rows.read(kubelet, known.allocations if known is not None else None, self._pods, now)
                if lists_devices:
                    devices, devices_problem = await self._list_devices(kubelet)
                if devices_problem and self._rows.calls == before:
                    # List distinguishes an old kubelet from one that is down
                    await self._rows.list(kubelet, now)
        except PodResourcesUnavailable as exc:
            self._rows.is_list_due = True
            problem = str(exc)
        # the newest checkpoint; it may have been read during the calls
        read, checkpoint = self._checkpoint, self._checkpoint.checkpoint
        if problem:
            return PodReading(checkpoint, None, problem)
        rows, is_listed = self._rows, self._rows.listed_at == now
        healthy, omitted = (None, read.omitted) if devices is None else (devices.devices, devices.omitted)
        return PodReading(
            checkpoint, rows.rows, "", is_listed, healthy, devices_problem, rows.claim_rows, omitted=omitted
        )

    async def _list_devices(self, kubelet: PodResources) -> tuple[HealthyDevices | None, str]:
        """Return the healthy devices, or None and why the kubelet does not list them."""
        held: dict[str, set[str]] = {}
        for row in self._rows.rows:
            held.setdefault(row.resource_name, set()).update(row.device_ids)
        try:
            self._devices = await kubelet.list_devices(self._devices, held)
        except PodResourcesUnavailable as exc:
            return None, str(exc)
        return self._devices, ""

    def _give(self, reading: str, give: Callable[[Subscriber], None]) -> bool:
        """Pass a reading to all subscribers; False if one failed."""
        taken = 0
        for subscriber in self._subscribers:
            with apart("kubelet state", reading=reading, subscriber=type(subscriber).__name__):
                give(subscriber)
                taken += 1
        return taken == len(self._subscribers)


def _file(
    file: Path, known: FileIdentity | None, before: Checkpoint | None
) -> tuple[FileIdentity | None, KubeletFile | None]:
    """Return the file's identity, and its content unless the identity is known. Blocks. Raises CheckpointCorrupt."""
    # taken before the content is read: a concurrent write changes the identity
    identity = file_identity(file)
    return identity, None if identity is not None and identity == known else read_file(file, before)


def _summed(unread: Mapping[AllocationKey, int]) -> str:
    names = sorted({resource_name for _, _, resource_name in unread})
    return f"{len(unread)} of {', '.join(names[:_MOST_NAMED])}" if unread else ""
