"""A second kube-scheduler on a control plane, set as the chart sets it, with or without an extender."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build.binaries import find
from tests.cluster.processes.processes import Process

_VERBS = ("filter", "prioritize", "bind", "preempt")
# requests a second, as in the chart's values
_QPS = 500


@dataclass(frozen=True)
class Extender:
    """url: of its verbs. resources: handled by the extender. Other pods bypass it."""

    url: str
    resources: Sequence[str]
    timeout_seconds: float = 5.0


def second_scheduler(
    kubeconfig: Path, folder: Path, name: str, extender: Extender | None, metrics_port: int = 0
) -> Process:
    """kube-scheduler for the pods whose schedulerName is `name`, not started yet. folder: for its configuration and log.

    metrics_port: on loopback, by HTTPS, open to everyone; 0: serve no metrics.
    """
    config: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(kubeconfig),
            "qps": _QPS,
            "burst": 2 * _QPS,
        },
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": name}],
    }
    if extender is not None:
        config["extenders"] = [_entry(extender)]
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    program = str(find(["kube-scheduler"])["kube-scheduler"])
    # no watched event shows a free device: it retries by itself
    flags = [f"--config={path}", "--pod-max-in-unschedulable-pods-duration=10s", f"--secure-port={metrics_port}"]
    flags += ["--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics", f"--cert-dir={folder}"]
    return Process(name, [program, *flags], folder / f"{name}.log")


def _entry(extender: Extender) -> dict[str, Any]:
    return {
        "urlPrefix": extender.url,
        **{f"{verb}Verb": verb for verb in _VERBS},
        # also in the chart's values
        "weight": 10,
        "nodeCacheCapable": True,
        "httpTimeout": f"{extender.timeout_seconds:g}s",
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in extender.resources],
    }
