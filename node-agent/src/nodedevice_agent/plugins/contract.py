"""The interface of built-in plugins. Each one is a folder of this package, and a field in settings.py with the folder's name.

settings.py in the folder defines the plugin's settings, a Plugin. Every agent imports it, so it is pure and imports little. Schemas
and pages are generated from it; charts/config_rules.py has the rules that types cannot express. The agent imports the other parts
on demand (see `part`):

serve     `async run(settings, node)` serves its resources until cancelled, each by a DeviceSource
          (lib.deviceplugin_server.server): devices, their health and the response to Allocate. node: see run.Node.
creation  `hook(configured, namespace)` returns its CreationHook. Optional.
discover  `async discover(configured, host_root, reads)` returns a Discovered for `nodedevice-agent discover`. Optional.
commands  a click group named Plugin.command, for a running plugin. Its commands get the state directory first. Optional.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from msgspec import Struct, field
from nodedevice_api.parts import PartRules

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox

# IDs of physical devices are unique within this scope and the plugin's name.
SCOPE: Final = "built-in"


def part(kind: str, name: str) -> Any:
    """Import the module `name` of a plugin's folder; None if the plugin lacks it."""
    return import_module(f"{__package__}.{kind}.{name}") if has_part(kind, name) else None


def has_part(kind: str, name: str) -> bool:
    return find_spec(f"{__package__}.{kind}.{name}") is not None


class Plugin(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of one plugin. A kind of plugin has either a list of these or one."""

    # Whether its devices are files of the host, which other resources may offer as well. Its settings may match no file.
    finds_files: ClassVar[bool] = False
    # labels of the Node that it reads
    node_labels: ClassVar[tuple[str, ...]] = ()
    # the agent's command for the plugin; may be empty
    command: ClassVar[str] = ""
    # How a container may request its devices: prefixes of variables, and a word in names of CDI devices and paths of mounts.
    # If its CreationHook fails, such containers do not start.
    asking_variables: ClassVar[tuple[str, ...]] = ()
    asking_word: ClassVar[str] = ""
    # note in the condition Injectable of its resources while the kubelet injects their devices
    kubelet_note: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The unique name of its task, and the scope of its devices' IDs."""
        raise NotImplementedError

    @property
    def scope(self) -> str:
        return f"{SCOPE} {self.name}"

    @classmethod
    def is_scope(cls, scope: str | None) -> bool:
        """Whether resources of this scope belong to this kind, with any settings."""
        return False

    def names(self) -> tuple[str, ...]:
        """Return the resource names that it may serve, without duplicates; may_serve() may accept more."""
        raise NotImplementedError

    def may_serve(self, resource_name: str) -> bool:
        return resource_name in self.names()

    def listed_at_once(self) -> tuple[str, ...]:
        """Return the resources that it lists within moments of its start."""
        return ()

    def continues(self, before: "Plugin") -> bool:
        """Whether a source that runs with `before` can adopt these settings without a restart.

        It cannot if a setting has changed that a plugin only sends when it registers.
        """
        return False

    def unmatched(self, indexes: Sequence[int]) -> list[str]:
        """Describe these parts of its settings, with their position."""
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


class Response(NamedTuple):
    """The response of a hook's plugin for one resource of a container. devices: ID and attributes of each physical device."""

    resource_name: str
    envs: Mapping[str, str]
    devices: Sequence[tuple[str, Mapping[str, str]]]


class Given(NamedTuple):
    """The edits of a container from the agent's plugins and from the kubelet's.

    holds: whether it has a device of the hook's plugin. unknown: why of_kubelet is unknown or incomplete.
    """

    holds: bool
    edits: ContainerEdits
    of_kubelet: ContainerEdits = ContainerEdits()
    unknown: str = ""


class Creation(Struct, frozen=True):
    """A hook's decision about a new container.

    envs: replace the container's own variables; None if it is exempt and keeps these. names: its own variables that lose a value.
    refusal: why it must not be created. outcome, event: for the metric and the log.
    """

    envs: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()
    refusal: str = ""
    outcome: str = "refused"
    event: str = ""


class CreationRefused(Exception):
    """A container must not be created; the text names the reason and the remedy."""


class HookFailed(Exception):
    """A CreationHook raised an unexpected error, which is the cause."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__(
            f"built-in plugin {kind} failed to decide about its devices ({error!r:.200}); report it with the log of this node's "
            "agent"
        )
        self.kind = kind


class CreationHook(Protocol):
    """A plugin's part in the creation of containers by NRI. Pure: returns what to set, withhold or refuse.

    Handles containers with the plugin's resources, and containers that request its devices in another way.
    """

    def reads(self, entry: str) -> bool:
        """Whether the hook needs the environment variable NAME=value."""

    def decides(self, name: str) -> bool:
        """Whether the plugin's response wins over the pod's own value of this variable."""

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        """Whether another plugin's response also overrides a pod's own values of these variables."""

    def joined(self, container: str, responses: Sequence[Response]) -> Mapping[str, str]:
        """Return the variables that the hook decides, for a container with these responses. Raises CreationRefused."""

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> Creation:
        """Decide for a container with a device. env: as for reads(). edits: all its edits. Raises CreationRefused."""

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: Given) -> Creation | None:
        """Decide for any container; None if it only requests allocated devices."""

    def note(self, exempt_pods: Sequence[str]) -> str:
        """Return a sentence for the condition Injectable of its resources, or an empty string."""


class CommandFailed(Exception):
    """A command of a plugin failed; the text is one line for the administrator."""


class Reported(Struct, frozen=True):
    """A device that a driver reports. identity: see Candidate. offered_as: resources that already offer it."""

    name: str
    identity: Mapping[str, str]
    pci_bus_id: str = ""
    offered_as: tuple[str, ...] = ()


class Discovered(Struct, frozen=True):
    """A plugin's view of a node's devices.

    reported: devices that its driver reports. pci_vendor: vendor ID of its PCI devices, four hexadecimal digits. unreported: a note
    about PCI devices that the driver does not report. settings: settings that offer the reported devices. problem: why its devices
    are unknown; empty for a node without devices. offered_as: resources by the kernel's path of a file. missing: why a resource has
    no devices.
    """

    reported: tuple[Reported, ...] = ()
    pci_vendor: str = ""
    unreported: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    offered_as: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
