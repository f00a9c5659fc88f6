"""The kubelet's own device manager as a maker: a process of tests/oracle/main.go, spoken to in JSON lines.

The kubelet's directory is a constant, /var/lib/kubelet: the process lives in a mount namespace of its own, where a folder
of ours is mounted there. So the same plugins serve both makers, and its checkpoint can be read from here.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from tests.cluster.build.binaries import find
from tests.oracle.maker import PATIENCE_SECONDS, Held, Numbers, Verdict, Why, container_name
from tests.oracle.steps import Ctr, Machine

_CHECKPOINT = "kubelet_internal_checkpoint"
# A tmpfs first, because the directory need not exist on this machine, nor be ours to make.
_MOUNT = """
set -e
mount -t tmpfs nodedevice-oracle /var/lib
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
exec "$2"
"""
# As root, or as one's own root in a namespace of users, where the kernel lets everybody have one.
_WAYS = (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user"))
_LINE_BYTES = 64 * 1024 * 1024
_LAST_WORDS = 3000

# The kubelet has one reason for all that is not topology; which of them it was, only its words show.
_WORDS = (
    ("changed request for resource", Why.CHANGED),
    ("no healthy devices present", Why.LACKING),
    ("requested number of devices unavailable", Why.LACKING),
    ("previously allocated devices are no longer healthy", Why.LACKING),
    ("cannot allocate unregistered device", Why.LACKING),
    ("rpc error", Why.PLUGIN),
    ("no containers return in allocation response", Why.PLUGIN),
    ("has been stopped", Why.PLUGIN),
)


class OracleError(Exception):
    """The oracle answered with an error; the text is its own."""


class KubeletDied(OracleError):
    """The kubelet's code took its process down; the text is the beginning of what it printed."""


def way_to_mount() -> tuple[str, ...] | None:
    """How a mount namespace can be had here: the command's beginning, or None where there is no way."""
    if shutil.which("unshare") is None:
        return None
    for way in _WAYS:
        trial = [*way, "sh", "-c", "mount -t tmpfs nodedevice-oracle /var/lib"]
        if subprocess.run(trial, check=False, capture_output=True).returncode == 0:
            return way
    return None


class Kubelet:
    """A maker. Leave its `async with` to end the process."""

    def __init__(self, folder: Path, way: Sequence[str]) -> None:
        self.plugin_dir = folder
        self.checkpoint = folder / _CHECKPOINT
        self._way = way
        self._process: asyncio.subprocess.Process
        self._is_dead = False
        # how many lists of a plugin were waited for since the start
        self._lists = 0

    async def __aenter__(self) -> Self:
        await self._spawn()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._kill()

    async def start_again(self) -> None:
        """Another process, for one that died."""
        await self._kill()
        await self._spawn()

    async def _spawn(self) -> None:
        self._is_dead = False
        binary = await asyncio.to_thread(lambda: find(["oracle"])["oracle"])
        self._process = await asyncio.create_subprocess_exec(
            *(*self._way, "sh", "-c", _MOUNT, "sh", str(self.plugin_dir), str(binary)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
        )

    async def _kill(self) -> None:
        """What the kubelet still does by then needs no waiting for."""
        # killing one that is dead already would take its exit status from whoever waits for it
        if not self._is_dead and self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def ask(self, do: str, **fields: Any) -> Any:
        """One command and its answer. Raises OracleError."""
        line = json.dumps({"do": do, **fields}).encode() + b"\n"
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                stdin.write(line)
                await stdin.drain()
                answer = await stdout.readline()
        except TimeoutError as exc:
            raise OracleError(f"no answer to {do} {fields} in {PATIENCE_SECONDS:.0f} s") from exc
        except ConnectionError:
            answer = b""
        if not answer:
            self._is_dead = True
            raise KubeletDied(f"it died at {do} {fields}:\n{await self._last_words()}")
        reply = json.loads(answer)
        if reply.get("error"):
            raise OracleError(f"{do}: {reply['error']}")
        return reply.get("value")

    async def _last_words(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode(errors="replace")[:_LAST_WORDS]

    async def start(self, machine: Machine, running: Sequence[tuple[str, str]] | None = None) -> None:
        self._lists = 0
        await self.ask(
            "start",
            policy=machine.policy,
            scope=machine.scope,
            numa=machine.numa,
            running=[list(names) for names in running or ()],
            ready=running is None,
        )

    async def stop(self) -> None:
        if not self._is_dead:
            await self.ask("stop")

    async def all_pods_known(self) -> None:
        await self.ask("ready")

    async def listed(self, resource: str, count: int) -> None:
        await self.ask("wait", event="listed", resource=resource, count=count)

    async def until_numbers(self, resource: str, capacity: int, allocatable: int) -> None:
        """Until it counts so many, checked after each list that it gets; of one plugin alone."""
        while (await self.numbers()).get(resource) != (capacity, allocatable):
            self._lists += 1
            await self.listed(resource, self._lists)

    async def ended(self, resource: str, count: int) -> None:
        await self.ask("wait", event="ended", resource=resource, count=count)

    async def admit(self, uid: str, containers: Sequence[Ctr]) -> Verdict:
        asked = [
            {"name": container_name(index), "kind": ctr.kind, "limits": dict(ctr.limits)}
            for index, ctr in enumerate(containers)
        ]
        reply = await self.ask("admit", pod={"uid": uid, "containers": asked})
        if reply["admitted"]:
            return Verdict(True)
        return Verdict(False, _why(reply["reason"], reply["message"]), reply["message"])

    async def end(self, uid: str) -> None:
        await self.ask("end", uid=uid)

    async def held(self) -> Held:
        return {
            (entry["uid"], entry["container"], entry["resource"]): {
                device_id: tuple(sorted(nodes)) for device_id, nodes in entry["devices"].items()
            }
            for entry in await self.ask("held")
        }

    async def numbers(self) -> Numbers:
        reply = await self.ask("capacity")
        return {name: (count, reply["allocatable"].get(name, 0)) for name, count in reply["capacity"].items()}

    async def verify(self, checkpoint: Path) -> Any:
        """What the kubelet's own code reads in a checkpoint: entries and registered. Raises OracleError if it refuses it."""
        return await self.ask("verify", path=str(checkpoint))


def _why(reason: str, message: str) -> Why:
    if reason == "TopologyAffinityError":
        return Why.TOPOLOGY
    for words, why in _WORDS:
        if words in message:
            return why
    raise OracleError(f"a reason that is not known yet: {reason}: {message}")
