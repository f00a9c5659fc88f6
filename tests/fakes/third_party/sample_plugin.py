"""Kubernetes' own sample device plugin, built from the pinned module and run as it is."""

from collections.abc import Mapping
from pathlib import Path

from tests.cluster.build.binaries import find
from tests.fakes.third_party.mount_namespace import at_kubelet_path
from tests.fakes.third_party.mount_namespace import (
    unshare as unshare,  # whoever runs the plugin asks first whether it can
)

RESOURCE = "example.com/resource"
DEVICES = ("Dev-1", "Dev-2")


def command(plugin_dir: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs it against this plugin directory. environment: the plugin's own settings (CDI_ENABLED)."""
    return at_kubelet_path(find(["sample-device-plugin"])["sample-device-plugin"], plugin_dir, environment)
