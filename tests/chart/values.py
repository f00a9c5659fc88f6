"""Value sets of the chart as people have them."""

from collections.abc import Callable
from typing import Any

# exit status and output of a command
Outcome = tuple[int, str]
Command = Callable[..., Outcome]

# the account of each hook, by the command that it runs
HOOK_OF = {"crds": "nodedevice-crds", "cleanup": "nodedevice-cleanup", "check": "nodedevice-check"}

DIGEST = "sha256:" + "0" * 64

# Each is to render, to pass `helm lint --strict` and to be taken by a real API server.
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "processes of the hosts": {"agents": {"enabled": False}, "operator": {"enabled": False}},
    "a registry of one's own": {
        "image": {
            "registry": "registry.example.com/team/",
            "tag": "1.2.3",
            "pullPolicy": "Always",
            "pullSecrets": ["a", "b"],
        },
        "agents": {"image": {"digest": DIGEST}},
        "operator": {"image": {"tag": "edge"}},
    },
    "by the kubelet": {"agents": {"config": {"delivery": "kubelet", "kubeletDir": "/data/kubelet/"}}},
    "by NRI": {"agents": {"config": {"delivery": "nri", "nriSocket": "/run/other/nri.sock"}}},
    "the runtime's configuration": {"agents": {"config": {"runtimeConfig": "/etc/containerd/config.toml"}}},
    "nothing injected": {"agents": {"config": {"delivery": "none"}}},
    "paths for configurations": {"agents": {"allowedHostPaths": ["/dev", "/opt/devices/"]}},
    "nothing of DRA": {"agents": {"observeDra": False}},
    "no claims": {"agents": {"observeClaims": False}},
    "no CDI": {"agents": {"cdi": False}},
    "nothing observed": {"agents": {"observe": False, "config": {"delivery": "none"}}},
    "directories of one's own": {
        "agents": {
            "config": {
                "stateDir": "/data/nodedevice",
                "pluginDir": "/data/plugins/",
                "podResourcesSocket": "/run/monitors/pods.sock",
                "pluginsRegistryDir": "/var/lib/kubelet/plugins_registry",
            }
        }
    },
    "built-in plugins": {
        "agents": {
            "config": {
                "topologyPolicy": "best-effort",
                "plugins": {
                    "generic": [
                        {
                            "resourceName": "example.com/serial",
                            "groups": [
                                {"paths": [{"path": "/dev/ttyUSB*"}], "count": 2, "env": {"SPEED": "9600"}},
                                {"paths": [{"path": "/dev/ttyACM0", "permissions": "r"}]},
                            ],
                        }
                    ],
                    "simulated": [
                        {
                            "resourceName": "example.com/gpu",
                            "count": 8,
                            "numaNodes": 2,
                            "partsPerDevice": 80,
                            "parts": {"placement": "same-parent"},
                        }
                    ],
                    "hostRoot": "/host",
                },
            },
            "extraVolumes": [{"name": "host", "hostPath": {"path": "/"}}],
            "extraVolumeMounts": [{"name": "host", "mountPath": "/host", "readOnly": True}],
        }
    },
    "USB devices": {
        "agents": {
            "config": {
                "plugins": {
                    "generic": [
                        {
                            "resourceName": "example.com/camera",
                            "groups": [
                                {"select": {"udev": {"ID_PATH": "platform-*.csi"}, "subsystems": ["video4linux"]}}
                            ],
                        },
                        {
                            "resourceName": "example.com/dongle",
                            "groups": [
                                {"select": {"usb": {"vendor": "0403", "product": "6001"}, "mountPath": "/dev/dongle/"}},
                                {"select": {"usb": {"serial": "A5*", "port": "1-2.*"}, "permissions": "r"}, "count": 2},
                            ],
                        },
                    ]
                }
            }
        }
    },
    "udev for configurations of nodes": {"agents": {"udev": True}},
    "CDI for configurations of nodes": {"agents": {"cdi": True}},
    "GPUs by CDI alone": {"agents": {"config": {"plugins": {"nvml": {"handOver": ["env", "cdi"]}}}}},
    "GPUs without a choice of the way": {"agents": {"config": {"plugins": {"nvml": {"handOver": ["env"]}}}}},
    "GPUs by NVIDIA's runtime": {
        "agents": {
            "config": {"plugins": {"nvml": {}}},
            "runtimeClassName": "nvidia",
            "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
            ],
        }
    },
    "GPUs by privilege": {
        "agents": {
            "config": {"plugins": {"nvml": {"libraryDir": "/driver"}}},
            "privileged": True,
            "extraVolumes": [{"name": "driver", "hostPath": {"path": "/usr/lib/x86_64-linux-gnu"}}],
            "extraVolumeMounts": [{"name": "driver", "mountPath": "/driver", "readOnly": True}],
        }
    },
    "pools of nodes": {
        "agents": {
            "affinity": {"podAntiAffinity": {}},
            "pools": [
                {"name": "gpus", "nodeSelector": {"gpu": "yes"}, "runtimeClassName": "nvidia", "resources": {}},
                {"name": "lab", "nodeSelector": {"pool": "lab", "zone": "a"}, "privileged": True, "tolerations": []},
            ],
        }
    },
    "everything of pods": {
        "agents": {
            "nodeSelector": {"accelerator": "yes"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "accelerator", "operator": "Exists"}]}]
                    }
                }
            },
            "tolerations": [
                {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 5}
            ],
            "priorityClassName": "",
            "maxUnavailable": 3,
            "env": [{"name": "LANG", "value": "C"}],
            "podAnnotations": {"example.com/note": "a"},
            "podLabels": {"team": "a", "app.kubernetes.io/created-by": "me"},
            "seLinuxOptions": {"type": "spc_t"},
            "httpPort": 10000,
            "resources": {},
        },
        "operator": {
            "replicas": 1,
            "affinity": {"podAntiAffinity": {}},
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "podAnnotations": {"example.com/note": "a"},
            "podLabels": {"team": "a"},
            "httpPort": 10001,
            "resources": {"limits": {"cpu": 1, "memory": "1.5Gi"}},
        },
    },
    "all that may be written": {
        "requiredPlugins": {"names": ["example.com/*"]},
        "evictions": True,
        "nodeTaint": "on",
        "nodeLabels": "remove",
        "operator": {"config": {"heldDevicePolicy": {"*": "evict", "example.com/gpu": "report"}, "logFormat": "json"}},
    },
    "as little as may be": {
        "requiredPlugins": {"enabled": False},
        "markWaitingPods": False,
        "admission": {"agents": False, "operator": False},
        "crds": {"upgrade": False},
        "cleanup": {"enabled": False},
    },
    "all goes at the end": {"crds": {"keep": False, "allowDowngrade": True}, "cleanup": {"timeoutSeconds": 600}},
    "metrics by token": {"metrics": {"authentication": "token"}},
    "metrics by token, with a certificate": {"metrics": {"authentication": "token", "certificate": "of-ours"}},
    "HTTPS": {"metrics": {"certificate": "of-ours"}},
    "closed ports": {"networkPolicies": {"enabled": True}},
    "ports for monitoring": {
        "networkPolicies": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        }
    },
    "a second scheduler": {
        "scheduler": {"enabled": True, "managedResources": ["aliyun.com/gpu-mem", "example.com/gpu"]},
        "networkPolicies": {"enabled": True},
        "metrics": {"authentication": "token"},
    },
    "a second scheduler, otherwise": {
        "scheduler": {
            "enabled": True,
            "managedResources": ["aliyun.com/gpu-mem"],
            "schedulerName": "of-ours",
            "image": {"repository": "registry.example.com/kube-scheduler", "digest": DIGEST},
            "replicas": 1,
            "policy": "spread",
            "weight": 3,
            "httpTimeout": "1500ms",
            "clientConnection": {"qps": 50, "burst": 100},
            "extender": {"httpPort": 10002, "resources": {}},
            "resources": {"limits": {"cpu": 2}},
            "affinity": {"podAntiAffinity": {}},
            "env": [{"name": "LANG", "value": "C"}],
            "podAnnotations": {"example.com/note": "a"},
            "podLabels": {"team": "a"},
            "priorityClassName": "",
        },
        "image": {"pullSecrets": ["a"]},
        "admission": {"scheduler": False},
    },
    "an extender for the cluster's scheduler": {
        "scheduler": {"service": True, "managedResources": ["aliyun.com/gpu-mem"], "clusterIP": "10.96.0.77"},
        "networkPolicies": {"enabled": True},
    },
    "an extender with a certificate of one's own": {
        "scheduler": {
            "service": True,
            "managedResources": ["aliyun.com/gpu-mem"],
            "replicas": 1,
            "tls": {"certificate": "of-ours", "clientNames": ["scheduler.example.com"]},
        },
        "metrics": {"certificate": "of-ours-too"},
    },
    "Leases elsewhere": {"agents": {"leaseNamespace": "leases-of-agents"}},
    "part of another chart": {"global": {"anything": {"at": "all"}}},
}
