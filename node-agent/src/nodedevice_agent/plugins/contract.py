"""What a built-in plugin is to the rest of the agent: a folder of this package, and a line in settings.py with the folder's name.

settings.py of the folder has the plugin's settings, a Plugin. Every agent imports it, so it is pure and imports little. The agent
imports the other parts where it needs them (see `part`):

serve     `async run(settings, node)` serves its resources until cancelled, each by a DeviceSource
          (lib.deviceplugin_server.server): devices, their health and the response to Allocate.
creation  `hook(configured, namespace)` returns its CreationHook. Optional.
discover  `async discover(configured, host_root, reads)` returns what `nodedevice-agent discover` shows, a Discovered. Optional.
commands  a click group with the name Plugin.command, for a running plugin. Its commands get the state directory first. Optional.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from msgspec import Struct, field
from nodedevice_api.parts import PartRules

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
    def is_scope(cls, scope: str) -> bool:
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

    # What pods request, such as example.com/device.
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
        is_same = isinstance(before, type(self))
        return is_same and (self.part_rules, self.prefers) == (before.part_rules, before.prefers)


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


class Pod(Protocol):
    """A pod as the container runtime shows it."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...


class Container(Protocol):
    """A container that is to be created, as the container runtime shows it.

    env: NAME=value, of variables that some hook reads(), the image's first. null_mounts: paths at which /dev/null is mounted.
    """

    @property
    def name(self) -> str: ...
    @property
    def env(self) -> Sequence[str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def cdi_devices(self) -> Collection[str]: ...
    @property
    def null_mounts(self) -> Sequence[str]: ...


class Mount(Protocol):
    @property
    def container_path(self) -> str: ...


class Edits(Protocol):
    """What a container gets of device plugins. Paths are in normal form."""

    @property
    def envs(self) -> Mapping[str, str]: ...
    @property
    def cdi_devices(self) -> Collection[str]: ...
    @property
    def mounts(self) -> Sequence[Mount]: ...


class Response(Struct, frozen=True):
    """The hook's plugin's response for one resource of a container.

    devices: ID and attributes of each physical device, as listed now.
    """

    resource_name: str
    envs: Mapping[str, str]
    devices: Sequence[tuple[str, Mapping[str, str]]]


class Creation(Struct, frozen=True):
    """What becomes of a container. envs: what it gets in place of variables of its own.

    names: its own variables that lose a value by that. refusal: why it must not be created. exempt: whether it keeps what it asks
    for. outcome: for the metric. event: for the log.
    """

    envs: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    refusal: str = ""
    outcome: str = ""
    event: str = ""

    @property
    def is_exempt(self) -> bool:
        return self.outcome == EXEMPT


# The container keeps what it asks for.
EXEMPT: Final = "exempt"


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

    def overrules(self, pod: Pod, edits: Edits) -> bool:
        """Whether another plugin's response to a pod wins in these variables, too."""

    def check(self, pod: Pod, container: Container, *, holds: bool) -> None:
        """Raises CreationRefused for a container that asks for too much to be compared. holds: whether it has a device."""

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        """The variables that it decides, for a container with these responses. Raises CreationRefused."""

    def for_holder(self, container: str, env: Sequence[str], edits: Edits) -> Creation:
        """For a container with a device. env: its own. edits: all that it gets. Raises CreationRefused."""

    def for_any(
        self, pod: Pod, container: Container, given: Edits, of_kubelet: Edits, *, holds: bool
    ) -> Creation | None:
        """For any container; None where it asks for nothing that it was not allocated.

        given: what it gets of this agent's plugins. of_kubelet: what it has of the kubelet's.
        """

    def unknown(self, container: str, why: str) -> str:
        """Why a container is refused that asks for devices while it is not known what it has of the kubelet."""

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
