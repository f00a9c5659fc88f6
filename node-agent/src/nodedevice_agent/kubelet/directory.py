"""The kubelet's directory: where its sockets and its checkpoint are, and what is in the checkpoint.

Source: kubelet pkg/kubelet/cm/devicemanager, where the plugin directory is a constant @ 1.37.
"""

import os
from pathlib import Path
from typing import Final

from nodedevice_agent.checkpoint.files import read_regular
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError

PLUGIN_DIR: Final = "device-plugins"
CHECKPOINT: Final = "kubelet_internal_checkpoint"
POD_RESOURCES: Final = "pod-resources/kubelet.sock"


class KubeletDirectory:
    """Paths below --kubelet-dir, as this process sees them. Only our own sockets are written there, see kubelet/backend.py."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.device_plugins = path / PLUGIN_DIR
        self.checkpoint = self.device_plugins / CHECKPOINT
        self.pod_resources = path / POD_RESOURCES

    def refuse_as_own(self, plugin_dir: Path) -> None:
        """Raises AgentSettingsError where our own plugin directory is the kubelet's: each would remove the other's sockets."""
        if os.path.realpath(plugin_dir) == os.path.realpath(self.device_plugins):
            raise AgentSettingsError(
                f"--plugin-dir {plugin_dir} is the kubelet's plugin directory, and --runtime kubelet needs another one: "
                "set --plugin-dir to a directory of this agent and register the device plugins there"
            )


def checkpoint_octets(file: Path) -> bytes | None:
    """The kubelet's checkpoint; None where it has written none yet. Raises CheckpointCorrupt for one that cannot be read."""
    try:
        return read_regular(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise CheckpointCorrupt(f"cannot be read: {exc.strerror}") from exc


def checkpoint_of(octets: bytes | None) -> Checkpoint:
    """Raises CheckpointCorrupt. Takes seconds where the plugins' responses are long: the checksum covers every byte of them."""
    return Checkpoint() if octets is None else decode(octets)


def read_checkpoint(kubelet_dir: Path) -> Checkpoint:
    """The kubelet's checkpoint; empty where there is none yet. Waits for the disk. Raises CheckpointCorrupt."""
    return checkpoint_of(checkpoint_octets(kubelet_dir / PLUGIN_DIR / CHECKPOINT))
