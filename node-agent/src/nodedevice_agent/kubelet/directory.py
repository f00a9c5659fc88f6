"""Paths of the kubelet's directory: its plugin directory, its checkpoint, its pod resources socket.

Read only, except for our own sockets, which kubelet/endpoint.py serves there under names that no other plugin has.
Source: kubelet pkg/kubelet/cm/devicemanager and pkg/kubelet/apis/podresources @ 1.37; the plugin directory is a constant there.
"""

from pathlib import Path

from nodedevice_agent.checkpoint.files import read_regular
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.deviceplugin_server.values import socket_name

PLUGIN_DIR = "device-plugins"
CHECKPOINT = "kubelet_internal_checkpoint"
_OURS = "nodedevice-"


class KubeletDirectory:
    """Paths below --kubelet-dir, as this process sees them."""

    def __init__(self, path: Path, plugin_dir: Path) -> None:
        """Raises AgentSettingsError where our own plugin directory is the kubelet's: each would remove the other's sockets."""
        self.path = path
        self.device_plugins = path / PLUGIN_DIR
        self.checkpoint = self.device_plugins / CHECKPOINT
        self.pod_resources = path / "pod-resources" / "kubelet.sock"
        if plugin_dir.resolve() == self.device_plugins.resolve():
            raise AgentSettingsError(
                f"--plugin-dir {plugin_dir} is the kubelet's plugin directory, and --runtime kubelet needs another one: "
                "set --plugin-dir to a directory of this agent and register the device plugins there"
            )

    def read_checkpoint(self) -> Checkpoint:
        """Raises CheckpointCorrupt."""
        return read_checkpoint(self.path)


def read_checkpoint(kubelet_dir: Path) -> Checkpoint:
    """The kubelet's checkpoint; empty where there is none yet. Raises CheckpointCorrupt."""
    try:
        return decode(read_regular(kubelet_dir / PLUGIN_DIR / CHECKPOINT))
    except (FileNotFoundError, NotADirectoryError):
        return Checkpoint()
    except OSError as exc:
        raise CheckpointCorrupt(f"cannot be read: {exc.strerror}") from exc


def endpoint_name(resource_name: str) -> str:
    """File name of the socket on which this agent serves a resource to the kubelet; at most 41 characters."""
    return f"{_OURS}{socket_name(resource_name)}"
