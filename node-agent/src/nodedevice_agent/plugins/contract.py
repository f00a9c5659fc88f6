"""What a built-in plugin is to the rest of the agent: a folder of this package, and a field in settings.py with the folder's name.

settings.py of the folder has the plugin's settings, a Plugin. Every agent imports it, so it is pure and imports little. The schemas
and pages are made from it; what types do not state is in charts/config_rules.py. The agent imports the other parts where it needs
them (see `part`):

serve     `async run(settings, node)` serves its resources until cancelled, each by a DeviceSource
          (lib.deviceplugin_server.server): devices, their health and the response to Allocate.
creation  `hook(configured, namespace)` returns its CreationHook. Optional.
discover  `async discover(configured, host_root, reads)` returns what `nodedevice-agent discover` shows, a Discovered. Optional.
commands  a click group with the name Plugin.command, for a running plugin. Its commands get the state directory first. Optional.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field
from nodedevice_api.parts import PartRules

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
    from nodedevice_agent.lib.deviceplugin_server.server import DeviceSource
    from nodedevice_agent.lib.file_watcher import FileWatcher
    from nodedevice_agent.plugins.room import Room

# IDs of physical devices of built-in plugins are IDs within it and the plugin's name.
SCOPE: Final = "built-in"

T = TypeVar("T")


def part(kind: str, name: str) -> Any:
    """The module `name` of a plugin's folder; None where the plugin does without it."""
    module = f"{__package__}.{kind}.{name}"
    return import_module(module) if find_spec(module) is not None else None


# -- settings and live configuration --------------------------------------------------------------------------------------


class Plugin(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of one plugin. A kind of plugin has either a list of these or one."""

    # Whether its devices are files of the host, which other resources may offer too. Parts of its settings may match no file.
    finds_files: ClassVar[bool] = False
    # the Node's labels that it reads
    node_labels: ClassVar[tuple[str, ...]] = ()
    # the agent's command for it; empty for none
    command: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The name of its task, unlike that of any other plugin, and the scope of its devices' IDs."""
        raise NotImplementedError

    @property
    def scope(self) -> str:
        return f"{SCOPE} {self.name}"

    @classmethod
    def is_scope(cls, scope: str | None) -> bool:
        """Whether resources of this scope are this kind's, whatever its settings are."""
        return False

    def names(self) -> tuple[str, ...]:
        """The resource names that it may serve, each once; may_serve() may know more."""
        raise NotImplementedError

    def may_serve(self, resource_name: str) -> bool:
        return resource_name in self.names()

    def listed_at_once(self) -> tuple[str, ...]:
        """The resources that it lists within moments of its start."""
        return ()

    def continues(self, before: "Plugin") -> bool:
        """Whether a source that runs with `before` can take these settings.

        It cannot where the device manager would have to learn something that a plugin says only when it registers.
        """
        return False

    def unmatched(self, indexes: Sequence[int]) -> list[str]:
        """These parts of its settings in words, with their place in them."""
        return []


class OneResource(Plugin, frozen=True):
    """Settings of a plugin that serves one resource."""

    # what pods request, such as example.com/device
    resource_name: str

    @property
    def name(self) -> str:
        return self.resource_name

    @property
    def part_rules(self) -> PartRules | None:
        """How containers share its devices; None for whole devices."""
        return None

    @property
    def prefers(self) -> bool:
        """Whether its source has a preference among devices."""
        return False

    def names(self) -> tuple[str, ...]:
        return (self.resource_name,)

    def listed_at_once(self) -> tuple[str, ...]:
        return self.names()

    def continues(self, before: Plugin) -> bool:
        if not isinstance(before, OneResource) or type(before) is not type(self):
            return False
        return (self.part_rules, self.prefers) == (before.part_rules, before.prefers)


# -- serving --------------------------------------------------------------------------------------------------------------


class Node(Protocol):
    """What a plugin that is served has of its node.

    host_root: where the agent sees the host's file tree. state_dir: for files of the plugin's own. room: how many devices it may
    list. sockets: the node's labels, how responses reach containers, and where to report parts of settings without a device.
    """

    host_root: str
    state_dir: "Path"
    watcher: "FileWatcher"
    room: "Room"
    sockets: "BuiltInSockets"

    def common(self, make: Callable[..., T], *given: str) -> T:
        """What all plugins of the process share: made with these arguments at the first call."""

    async def serve(self, source: "DeviceSource", reconfigure: Callable[[Any], None] | None = None) -> None:
        """Serve this source until cancelled. reconfigure: called with settings that continue() those of the source.

        Raises CannotServe, OSError or what the source raises; run() is called again after that.
        """


# -- CreateContainer ------------------------------------------------------------------------------------------------------


class Response(NamedTuple):
    """The response of a hook's plugin for one resource of a container. devices: ID and attributes of each physical one."""

    resource_name: str
    envs: Mapping[str, str]
    devices: Sequence[tuple[str, Mapping[str, str]]]


class Given(NamedTuple):
    """What a container gets of this agent's plugins, and of the kubelet's.

    holds: whether it has a device of the hook's plugin. unknown: why it is not, or not all, known what it has of the kubelet's.
    """

    holds: bool
    edits: ContainerEdits
    of_kubelet: ContainerEdits = ContainerEdits()
    unknown: str = ""


class Creation(Struct, frozen=True):
    """What becomes of a container.

    envs: what it gets in place of variables of its own; None where it is exempt, and keeps all that it asks for. names: its own
    variables that lose a value. refusal: why it must not be created. outcome, event: for the metric and the log.
    """

    envs: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    refusal: str = ""
    outcome: str = "refused"
    event: str = ""


class CreationRefused(Exception):
    """A container must not be created; the text names the reason and the remedy."""


class CreationHook(Protocol):
    """What a plugin has to say of the creation of containers, by NRI. Pure: it returns what to set, to withhold or to refuse.

    It is about the plugin's own resources, and about containers without one that ask for its devices in another way.
    """

    def reads(self, entry: str) -> bool:
        """Whether the environment variable NAME=value matters to it."""

    def decides(self, name: str) -> bool:
        """Whether the plugin's response wins over the pod's own value of this variable."""

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        """Whether another plugin's response to a pod wins in these variables, too."""

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        """The variables that it decides, for a container with these responses. Raises CreationRefused."""

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> Creation:
        """For a container with a device, and variables that it reads(). edits: all that it gets. Raises CreationRefused."""

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: Given) -> Creation | None:
        """For any container; None where it asks for nothing that it was not allocated."""

    def note(self, exempt_pods: Sequence[str]) -> str:
        """A sentence for the condition Injectable of its resources; empty for none."""


# -- commands -------------------------------------------------------------------------------------------------------------


class CommandFailed(Exception):
    """A command of a plugin cannot do what it is asked for; the text is one line for the administrator."""


# -- discovery ------------------------------------------------------------------------------------------------------------


class Reported(Struct, frozen=True):
    """A device that a driver reports. identity: as of a Candidate. offered_as: resources that it is a device of already."""

    name: str
    identity: Mapping[str, str]
    pci_bus_id: str = ""
    offered_as: tuple[str, ...] = ()


class Discovered(Struct, frozen=True):
    """What a plugin knows of a node's devices.

    reported: by its driver. pci_vendor: of PCI devices that are its in any case, four hexadecimal digits. unreported: a note about
    one that the driver does not report. settings: what offers these devices. problem: why nothing is known of its devices, empty
    where the node has none. offered_as: resources, by the kernel's path of a file. missing: why a resource has no device.
    """

    reported: tuple[Reported, ...] = ()
    pci_vendor: str = ""
    unreported: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    offered_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
