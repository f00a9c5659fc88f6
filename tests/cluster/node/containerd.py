"""containerd's configuration on a machine of its own: settings with reasons.

Starts nothing. Paths are as on a real node, inside the machine. Strings and lists have the same form in TOML and
JSON.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.images import SANDBOX_IMAGE

SOCKET = "/run/containerd/containerd.sock"
NRI_SOCKET = "/run/nri/nri.sock"
CDI_DIR = "/run/cdi"

_TEMPLATE = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
address = {socket}

[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/containerd/opt"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
# no sync: the images are deleted after the run
image_pull_with_sync_fs = false

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = {sandbox_image}

[plugins.'io.containerd.cri.v1.runtime']
# without CAP_SYS_RESOURCE runc cannot lower the score, and dies
restrict_oom_score_adj = true
disable_apparmor = true
enable_cdi = true
cdi_spec_dirs = {cdi_dirs}

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = {cni_bin_dirs}
conf_dir = {cni_conf_dir}

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = {runc}
SystemdCgroup = {systemd_cgroups}

[plugins.'io.containerd.nri.v1.nri']
disable = {nri_disabled}
socket_path = {nri_socket}
plugin_path = "/var/lib/nri/plugins"
plugin_config_path = "/var/lib/nri/conf.d"

# holds a container back if its pod requires a missing plugin
[plugins.'io.containerd.nri.v1.nri'.default_validator]
enable = {validator_enabled}
"""


@dataclass(frozen=True)
class RuntimeSettings:
    """Settings that differ between runs. nri: enable its socket. validator: enforce required plugins.

    systemd_cgroups: runc asks systemd for its cgroups.
    """

    cni_bin_dirs: Sequence[Path]
    cni_conf_dir: Path
    runc: Path
    nri: bool = True
    validator: bool = True
    systemd_cgroups: bool = False


def configuration(settings: RuntimeSettings) -> str:
    """The text of config.toml."""
    values = {
        "socket": SOCKET,
        "sandbox_image": SANDBOX_IMAGE,
        "cdi_dirs": [CDI_DIR],
        "cni_bin_dirs": [str(folder) for folder in settings.cni_bin_dirs],
        "cni_conf_dir": str(settings.cni_conf_dir),
        "runc": str(settings.runc),
        "nri_disabled": not settings.nri,
        "nri_socket": NRI_SOCKET,
        "validator_enabled": settings.validator,
        "systemd_cgroups": settings.systemd_cgroups,
    }
    return _TEMPLATE.format_map({name: json.dumps(value) for name, value in values.items()})


def network(bridge: str, subnet: str, last_address: str, *, routed: bool = False) -> str:
    """A CNI configuration: each pod gets an address on the bridge, without a way out, unless `routed`: through the node."""
    routes = {"routes": [{"dst": "0.0.0.0/0"}]} if routed else {}
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "nodedevice-test",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": bridge,
                    "isGateway": routed,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": subnet, "rangeEnd": last_address}]],
                        **routes,
                        "dataDir": "/run/cni/networks",
                    },
                }
            ],
        }
    )
