"""What others run and configure in a cluster with nodedevice: a vendor's device plugin, and pods that ask for devices."""

from collections.abc import Mapping
from typing import Any

from nodedevice_api import names

from tests.cluster.build.images import TEST_IMAGE
from tests.fakes.third_party import sample_plugin

Json = dict[str, Any]
GPU = "example.com/gpu"
VENDOR_IMAGE = "vendor.example/sample-device-plugin:1"
VENDOR_RESOURCE, VENDOR_DEVICES = sample_plugin.RESOURCE, sample_plugin.DEVICES
VENDOR_PLUGIN = "sample-device-plugin"
_KUBELET_DIR = "/var/lib/kubelet/device-plugins"
_OUR_DIR = "/var/lib/nodedevice/device-plugins"


def simulated(count: int, resource: str = GPU) -> Json:
    """Settings of the built-in plugins: so many devices that exist in memory alone."""
    return {"simulated": [{"resourceName": resource, "count": count}]}


def built_in(count: int) -> Json:
    """Values of the chart by which each agent has so many GPUs."""
    return {"agents": {"config": {"plugins": simulated(count)}}}


def config(name: str, plugins: Json, **spec: Any) -> Json:
    kind = {"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE_CONFIG}
    return {**kind, "metadata": {"name": name}, "spec": {"plugins": plugins, **spec}}


def vendor_plugin() -> Json:
    """A vendor's DaemonSet as such are written, with one change: the hostPath of the plugin directory.

    Inside, the directory is where the plugin looks for it.
    """
    labels = {"k8s-app": VENDOR_PLUGIN}
    volumes = [
        {"name": "device-plugins", "hostPath": {"path": _OUR_DIR}},
        # what it lets containers mount: it says the host's path, and makes the file there
        {"name": "tmp", "hostPath": {"path": "/tmp"}},
    ]
    container = {
        "name": "plugin",
        "image": VENDOR_IMAGE,
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "device-plugins", "mountPath": _KUBELET_DIR}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": VENDOR_PLUGIN, "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{"operator": "Exists"}],
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                    "volumes": volumes,
                },
            },
        },
    }


def user(name: str, limits: Mapping[str, int], *checks: str) -> Json:
    """A pod that asks for devices, says what it got and stays. look: arguments of the checker."""
    container = {
        "name": "main",
        "image": TEST_IMAGE,
        "command": ["/bin/checker", "-stay", *checks],
        "resources": {"limits": {resource: str(count) for resource, count in limits.items()}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1, "enableServiceLinks": False},
    }
