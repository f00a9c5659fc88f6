"""The checkpoint as a record: the state that must survive a restart. Its file format is in checkpoint/format.py."""

from collections.abc import Mapping

import msgspec

from nodedevice_agent.devicemanager.records.allocations import Allocation, AllocationKey
from nodedevice_agent.devicemanager.records.cordons import Cordons
from nodedevice_agent.devicemanager.runtime import UnlistedContainer
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_agent.identity import Identity

_MAX_MESSAGE = 300


class CheckpointCorrupt(Exception):
    """An invalid checkpoint. The message names the error and has a bounded length."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "...")


class PluginSocket(msgspec.Struct, frozen=True, rename={"resource_name": "ResourceName", "name": "Endpoint"}):
    """A connected plugin, for the next start; renamed as in the checkpoint's file. name: file name in the plugin directory."""

    resource_name: str
    name: str


class JournalMark(msgspec.Struct, frozen=True):
    """A position in a journal. generation: identifies the process that wrote it, new for each. sequence: of the last line."""

    generation: str
    sequence: int


class Checkpoint(msgspec.Struct, frozen=True):
    """registered: healthy device IDs by resource; a restart uses only the names. boot_id: of the kernel at writing time. sockets:
    the plugins that were connected; only a hint for the next start, so invalid entries do not make the file corrupt. pre_starts:
    the pending PreStartContainer calls. unlisted: containers that may live, but are missing in the runtime's list. static_pods: as
    the runtime has shown them, with allocations or calls. cordons: by resource name; without empty ones. allocate_calls: calls
    without an allocation that must not be repeated. possible_holders: UIDs of pods by resource name; see omitted_allocations. gone:
    names of resources without allocations whose plugin is gone. part_sizes: by resource name; see DeviceUse. identities: of held
    devices of built-in plugins, by resource name and device ID. scopes: by resource name; see Presence. journal: the last journal
    line that is included; None without a journal, as in a kubelet's checkpoint.
    """

    allocations: tuple[Allocation, ...] = ()
    registered: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    boot_id: str = ""
    sockets: tuple[PluginSocket, ...] = ()
    pre_starts: tuple[AllocationKey, ...] = ()
    unlisted: tuple[UnlistedContainer, ...] = ()
    static_pods: tuple[StaticPod, ...] = ()
    cordons: Mapping[str, Cordons] = msgspec.field(default_factory=dict)
    allocate_calls: tuple[AllocationKey, ...] = ()
    possible_holders: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()
    part_sizes: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    identities: Mapping[str, Mapping[str, Identity]] = msgspec.field(default_factory=dict)
    scopes: Mapping[str, str] = msgspec.field(default_factory=dict)
    journal: JournalMark | None = None
