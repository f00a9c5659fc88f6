"""`make install` and `make uninstall` as they are typed, and what a cluster and a node have before and after."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hack.cluster.build.binaries import find
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.node.real_node import RealNode

_ROOT = Path(__file__).parents[3]
# of the control plane's own doing: they change without anybody's word
_NOT_ASKED = ("events", "leases", "endpoints", "endpointslices", "ipaddresses", "servicecidrs")


@dataclass(frozen=True)
class Clone:
    """socket: of the node's containerd, as seen from here."""

    control_plane: ControlPlane
    node: RealNode
    socket: Path

    def typed(self, command: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        """The command of the Makefile's target, without a terminal."""
        words = [sys.executable, "-m", "hack.install", command, "--containerd", str(self.socket), *arguments]
        folders = {str(find([program])[program].parent) for program in ("kubectl", "helm", "ctr")}
        return subprocess.run(
            words,
            cwd=_ROOT,
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
