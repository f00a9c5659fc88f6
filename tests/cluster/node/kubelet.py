"""The kubelet's configuration on a machine of its own: settings with reasons.

Starts nothing. Paths are as on a real node, inside the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane.certificates import Certificate
from tests.cluster.node import containerd

ROOT = "/var/lib/kubelet"
PLUGIN_DIR = f"{ROOT}/device-plugins"
MANIFESTS = f"{ROOT}/manifests"
HEALTH_PORT = 10248


@dataclass(frozen=True)
class KubeletSettings:
    """Settings that differ between runs. status_seconds: how often it reports its Node (upstream's default is 10)."""

    node_name: str
    address: str
    cgroup: str
    kubeconfig: Path
    authority: Path
    serving: Certificate
    status_seconds: int = 10


def command(binary: Path, configuration_file: Path, settings: KubeletSettings) -> list[str]:
    return [
        str(binary),
        f"--config={configuration_file}",
        f"--kubeconfig={settings.kubeconfig}",
        f"--hostname-override={settings.node_name}",
        f"--node-ip={settings.address}",
        f"--root-dir={ROOT}",
        f"--cert-dir={ROOT}/pki",
        "--v=2",
    ]


def configuration(settings: KubeletSettings, other: Mapping[str, Any] | None = None) -> str:
    """The text of its KubeletConfiguration. other: overrides; None leaves a key out."""
    values: dict[str, Any] = {**_values(settings), **(other or {})}
    return yaml.safe_dump({key: value for key, value in values.items() if value is not None})


def _values(settings: KubeletSettings) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **_reachable(settings),
        **_on_a_small_machine(settings),
        "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
        "staticPodPath": MANIFESTS,
        # the folder is created with the first manifest, and a missing folder is not watched
        "fileCheckFrequency": "1s",
        "nodeStatusUpdateFrequency": f"{settings.status_seconds}s",
        # many pods start at once in tests, and no registry or API server is shared here
        "registryPullQPS": 0,
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
    }


def _reachable(settings: KubeletSettings) -> dict[str, Any]:
    """The kubelet's address, and its authentication."""
    return {
        "address": settings.address,
        "healthzBindAddress": settings.address,
        "healthzPort": HEALTH_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(settings.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(settings.serving.certificate),
        "tlsPrivateKeyFile": str(settings.serving.key),
        # the machine has no DNS, and the host's DNS must not be used
        "resolvConf": "",
    }


def _on_a_small_machine(settings: KubeletSettings) -> dict[str, Any]:
    """Settings without systemd, iptables or CAP_SYS_RESOURCE, for either cgroup version."""
    return {
        "cgroupDriver": "cgroupfs",
        # pods' groups are below the run's own group: runs are separate, and its removal removes all
        "cgroupRoot": settings.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        # below its root: the default is a folder of the host's programs
        "volumePluginDir": f"{ROOT}/volume-plugins",
        # a full disk of the host must not fail tests
        "evictionHard": {
            "memory.available": "10Mi",
            "nodefs.available": "0.1%",
            "nodefs.inodesFree": "0.1%",
            "imagefs.available": "0.1%",
            "imagefs.inodesFree": "0.1%",
        },
        "imageGCHighThresholdPercent": 100,
    }
