"""Settings of the built-in plugins: the `plugins` section, and the one list of the plugins there are. Paths are the host's.

What types do not state is in charts/config_rules.py, and checked before settings are made of it.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, get_args

from msgspec import Meta, Struct, field

from nodedevice_agent.plugins.contract import Plugin
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings


class ConfiguredPlugins(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Each field is a plugin: the key in settings, the folder (contract.py), and its settings, as a list or alone."""

    # device files of the node, by path or by the properties that the kernel and udev report
    generic: Annotated[list[GenericSettings], Meta(max_length=256)] = field(default_factory=list)
    # devices without hardware, for trials
    simulated: Annotated[list[SimulatedSettings], Meta(max_length=256)] = field(default_factory=list)
    # NVIDIA GPUs; `{}` is enough. Unset: GPUs are ignored, as another plugin may serve them
    nvml: NvmlSettings | None = None

    def of(self, kind: str) -> list[Plugin]:
        """The plugins of one kind."""
        value: Any = getattr(self, kind)
        return value if isinstance(value, list) else [] if value is None else [value]

    def each(self) -> Iterator[tuple[str, str, Plugin]]:
        """All plugins, each with its kind and its place in these settings, in order."""
        for kind in KINDS:
            for at, plugin in enumerate(self.of(kind)):
                yield kind, f"{kind}[{at}]" if kind in LISTED else kind, plugin

    def may_serve(self, resource_name: str) -> bool:
        return any(plugin.may_serve(resource_name) for _, _, plugin in self.each())


class PluginSettings(ConfiguredPlugins, frozen=True):
    """All built-in plugins of a node."""

    # where the agent sees the host's file tree; / if the host's /dev is mounted at /dev
    host_root: str = "/"


def _settings_in(hint: Any) -> type[Plugin] | None:
    if isinstance(hint, type) and issubclass(hint, Plugin):
        return hint
    return next(filter(None, map(_settings_in, get_args(hint))), None)


# by key; the kinds with a list of settings
KINDS: Final[Mapping[str, type[Plugin]]] = {
    kind: found for kind, hint in ConfiguredPlugins.__annotations__.items() if (found := _settings_in(hint))
}
LISTED: Final = tuple(kind for kind in KINDS if isinstance(getattr(ConfiguredPlugins(), kind), list))


def kubelet_note(scope: str | None) -> str:
    """Return Plugin.kubelet_note for resources of this scope; "" for those of other programs."""
    return next((settings.kubelet_note for settings in KINDS.values() if settings.is_scope(scope)), "")
