"""What a restart must not lose, as values: the checkpoint's contents. The file format is in checkpoint/format.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodedevice_agent.devicemanager.allocation.allocations import Allocation

_MAX_MESSAGE = 300


class CheckpointCorrupt(Exception):
    """An invalid checkpoint. The message names the error and is bounded, whatever the file holds."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...")


@dataclass(frozen=True, slots=True)
class PluginSocket:
    """The socket of a connected plugin, for reconnecting after a restart. name: file name in the plugin directory."""

    resource_name: str
    name: str


@dataclass(frozen=True, slots=True)
class JournalMark:
    """A position in a journal. generation: identifies the process that wrote it, new for each. sequence: of the last line."""

    generation: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Allocations and what else a restart needs.

    registered: healthy device IDs by resource; a restart uses only the names. boot_id: of the kernel at writing time.
    sockets: the plugins that were connected; only a hint for the next start, so invalid entries do not make the file corrupt.
    pre_starts: (pod UID, container, resource name) of the pending PreStartContainer calls.
    journal: the last journal line that is included; None without a journal, as in a kubelet's checkpoint.
    """

    allocations: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    boot_id: str = ""
    sockets: tuple[PluginSocket, ...] = ()
    pre_starts: tuple[tuple[str, str, str], ...] = ()
    journal: JournalMark | None = None
