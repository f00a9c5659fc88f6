"""`make install` and `make uninstall` as they are typed, and what a cluster and a node have before and after."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node.real_node import RealNode

# of the control plane's own doing: they change without anybody's word
_NOT_ASKED = ("events", "leases", "endpoints", "endpointslices", "ipaddresses", "servicecidrs")


@dataclass(frozen=True)
class Clone:
    """folder: of the clone, which nobody edits meanwhile. socket: of the node's containerd, as seen from here."""

    folder: Path
    control_plane: ControlPlane
    node: RealNode
    socket: Path

    def typed(self, command: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """The command of the Makefile's target, without a terminal."""
        words = [sys.executable, "-m", "hack.install", command, "--containerd", str(self.socket), *arguments]
        folders = {str(find([program])[program].parent) for program in ("kubectl", "helm", "ctr")}
        return subprocess.run(
            words,
            cwd=self.folder,
            env={
                **os.environ,
                "KUBECONFIG": str(self.control_plane.admin_kubeconfig),
                "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
                **environment,
            },
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def done(self, command: str, *arguments: str, **environment: str) -> str:
        """What it printed; it ends well."""
        done = self.typed(command, *arguments, **environment)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    def settle(self) -> None:
        """Until all of it is as it will be: every pod runs, and nothing is pending in a NodeDevice."""
        kubectl = self.control_plane.kubectl
        for workload in ("daemonset/nodedevice-agent", "deployment/nodedevice-operator"):
            kubectl("rollout", "status", workload, "--namespace=nodedevice-system", "--timeout=120s")
        kubectl("wait", "--for=condition=Ready", "nodedevices", "--all", "--timeout=120s")

    def versions(self) -> Mapping[str, str]:
        """The resource version of each object of every kind, by kind and name."""
        kubectl = self.control_plane.kubectl
        kinds = kubectl("api-resources", "--verbs=list", "--output=name").split()
        wanted = ",".join(kind for kind in kinds if kind.partition(".")[0] not in _NOT_ASKED)
        listed = json.loads(kubectl("get", wanted, "--all-namespaces", "--output=json"))["items"]
        return {_name(item): item["metadata"].get("resourceVersion", "") for item in listed}

    def images(self) -> set[str]:
        """All names by which the node's containerd knows an image."""
        ctr = [str(find(["ctr"])["ctr"]), "--address", str(self.socket), "--namespace", "k8s.io", "images", "ls", "-q"]
        return set(subprocess.run(ctr, check=True, capture_output=True, text=True).stdout.split())

    def resources(self) -> set[str]:
        """Names of extended resources that the Node shows."""
        node = json.loads(self.control_plane.kubectl("get", "node", self.node.name, "--output=json"))
        return {name for name in node["status"]["capacity"] if "/" in name}


def _name(item: "dict[str, dict[str, str]]") -> str:
    metadata = item["metadata"]
    return f"{item['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
