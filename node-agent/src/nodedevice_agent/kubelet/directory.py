"""The kubelet's directory: the paths of its sockets and its checkpoint. Source: kubelet pkg/kubelet/cm/devicemanager @ 1.37."""

import os
from pathlib import Path
from typing import Final

from nodedevice_api.names import DELIVERY_KUBELET

from nodedevice_agent.checkpoint.files import open_regular
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.long_files import KubeletFile, decode_long
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError

PLUGIN_DIR: Final = "device-plugins"
CHECKPOINT: Final = "kubelet_internal_checkpoint"
POD_RESOURCES: Final = "pod-resources/kubelet.sock"
# A longer file is decoded in pieces, without its checksum, which takes a tenth of a second for each MiB.
MAX_BYTES_AT_ONCE: Final = 1024 * 1024
# Some 190 containers with the longest responses that a kubelet accepts. It rewrites the whole file for each pod.
MAX_BYTES: Final = 1024 * 1024 * 1024


class KubeletDirectory:
    """Paths below --kubelet-dir, as this process sees them. The agent writes only its own sockets there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.device_plugins = path / PLUGIN_DIR
        self.checkpoint = self.device_plugins / CHECKPOINT
        self.pod_resources = path / POD_RESOURCES

    def refuse_as_own(self, plugin_dir: Path) -> None:
        """Raise AgentSettingsError if the agent's plugin directory is the kubelet's: each would remove the other's sockets."""
        if os.path.realpath(plugin_dir) == os.path.realpath(self.device_plugins):
            raise AgentSettingsError(
                f"--plugin-dir {plugin_dir} is the kubelet's plugin directory, and --delivery kubelet needs another one: "
                "set --plugin-dir to a directory of this agent and register the device plugins there"
            )


def read_file(file: Path, before: Checkpoint | None = None) -> KubeletFile:
    """Read the kubelet's checkpoint; empty if it is missing. before: see decode_long(). Blocks. Raises CheckpointCorrupt."""
    try:
        with open_regular(file, MAX_BYTES) as opened:
            content = opened.read(MAX_BYTES_AT_ONCE + 1)
            if len(content) <= MAX_BYTES_AT_ONCE:
                return KubeletFile(decode(content, DELIVERY_KUBELET))
            opened.seek(0)
            return decode_long(opened.read, before)
    except (FileNotFoundError, NotADirectoryError):
        return KubeletFile(Checkpoint())
    except OSError as exc:
        raise CheckpointCorrupt(f"cannot be read: {exc.strerror}") from exc


def read_checkpoint(kubelet_dir: Path) -> Checkpoint:
    """See read_file()."""
    return read_file(KubeletDirectory(kubelet_dir).checkpoint).checkpoint
