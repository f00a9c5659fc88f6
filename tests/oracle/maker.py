"""One face for two makers of the same thing: the kubelet's device manager, and ours.

Both serve real sockets in `plugin_dir` and keep a checkpoint file; what differs on purpose is not evened out here, but in
differences.py, in words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from tests.oracle.steps import Ctr, Machine

# Longer than any deadline either side sets itself: what exceeds it hangs.
PATIENCE_SECONDS = 60.0


class Why(Enum):
    """Classes of reasons to refuse a pod; each maker has words of its own for them."""

    LACKING = "too few healthy devices, or no plugin that lists any"
    CHANGED = "a container changed its request"
    PLUGIN = "the plugin failed"
    TOPOLOGY = "not on the NUMA nodes that the policy wants"


@dataclass(frozen=True)
class Verdict:
    """What became of a pod. why is None for an admitted one; message is the maker's own."""

    is_admitted: bool
    why: Why | None = None
    message: str = ""


# (pod, container, resource) to device ID to NUMA nodes
Held = Mapping[tuple[str, str, str], Mapping[str, tuple[int, ...]]]
# resource to (capacity, allocatable)
Numbers = Mapping[str, tuple[int, int]]


class Maker(Protocol):
    """A device manager that takes events, and can be asked what it makes of them."""

    plugin_dir: Path
    checkpoint: Path

    async def start(self, machine: Machine, running: Sequence[tuple[str, str]] | None = None) -> None:
        """Begin, or begin again, on what the checkpoint holds.

        running: (pod, container) that outlived the manager, which waits for all_pods_known(); None: no pods are there.
        """

    async def stop(self) -> None:
        """End in order: what was decided is on disk."""

    async def all_pods_known(self) -> None:
        """The pods that were there at the start have all been reported."""

    async def listed(self, resource: str, count: int) -> None:
        """Wait until so many device lists have been dealt with since the start."""

    async def ended(self, resource: str, count: int) -> None:
        """Wait until so many ends of connections have been dealt with since the start."""

    async def admit(self, uid: str, containers: Sequence[Ctr]) -> Verdict:
        """A pod comes, or comes again; the answer is final for the kubelet, and for us as long as nothing changes."""

    async def end(self, uid: str) -> None:
        """The pod is gone."""

    async def held(self) -> Held:
        """What the pods that are there hold."""

    async def numbers(self) -> Numbers:
        """What is made of the plugins' lists."""


def container_name(index: int) -> str:
    """Containers have no names in steps; these are those of the n-th."""
    return f"c{index}"
