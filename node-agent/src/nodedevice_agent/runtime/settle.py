"""Which runtime an agent runs with: the one that is set, or what `auto` comes to on this node, written down for the next start."""

from pathlib import Path

import msgspec

from nodedevice_agent.runtime import selected_runtime as kept_runtime
from nodedevice_agent.settings import Settings


def with_runtime_settled(settings: Settings) -> Settings:
    """The settings with a runtime by name. The state directory has to be there. Raises SettingsError."""
    runtime = kept_runtime.settle(
        settings.runtime,
        Path(settings.state_dir),
        Path(settings.kubelet_dir),
        Path(settings.nri_socket),
        settings.plugins.resource_names(),
    )
    return msgspec.structs.replace(settings, runtime=runtime)
