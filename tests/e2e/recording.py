"""What tests ran on, for the table of nodes in docs/install.md: asked of the nodes themselves, kept for files of tests that passed.

Only where RECORD is set, as by `make e2e-machine RECORD=1`. A test says what it ran on by the fixture `ran_on`.
"""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from docs import generate_tried_nodes
from docs.tried_nodes import TriedNode, merged
from tests.cluster.api import Node
from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.node.real_node import RealNode

Shell = Callable[[str], str]
RanOn = Callable[[Callable[[], TriedNode]], None]


def is_recording() -> bool:
    return bool(os.environ.get("RECORD"))


class Recorder:
    """What came of the tests of this run."""

    def __init__(self) -> None:
        self._described: dict[Callable[[], TriedNode], TriedNode] = {}
        self._outcomes: dict[str, dict[TriedNode, dict[str, bool]]] = {}

    def node(self, describe: Callable[[], TriedNode]) -> TriedNode:
        """Each is asked once."""
        if describe not in self._described:
            self._described[describe] = describe()
        return self._described[describe]

    def note(self, target: str, node: TriedNode, tests: str, *, is_passed: bool) -> None:
        """target: of make, that runs them. tests: the words of a file, which has passed when each of its tests has."""
        passed = self._outcomes.setdefault(target, {}).setdefault(node, {})
        passed[tests] = passed.get(tests, True) and is_passed

    def keep(self) -> None:
        """Write them into the file that the table is made from."""
        today = datetime.now(UTC).date().isoformat()
        with generate_tried_nodes.locked():
            rows = generate_tried_nodes.read()
            for target, outcomes in self._outcomes.items():
                rows = merged(rows, target, outcomes, today)
            generate_tried_nodes.write(rows)


def described(
    control_plane: ControlPlane, name: str, shell: Shell, containerd: str, oci: str, init: str, delivery: str, helm: str
) -> TriedNode:
    """A node, by its own words. shell: runs a command there. containerd: its configuration.

    oci, init, helm: what they print of their versions. delivery: the agent's.
    """
    status = control_plane.client.get(Node, name).status
    assert status is not None
    assert status.nodeInfo is not None
    info = status.nodeInfo
    configuration = control_plane.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/configz")
    return TriedNode(
        kubernetes=info.kubeletVersion.removeprefix("v"),
        architecture=info.architecture,
        system=info.osImage.partition(" (")[0].replace("GNU/Linux ", "") if init else "",
        init=systemd_version(init),
        kernel=kernel_version(info.kernelVersion),
        cgroup="v2" if shell("stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs" else "v1",
        driver=json.loads(configuration)["kubeletconfig"]["cgroupDriver"],
        containers=info.containerRuntimeVersion.replace("://", " "),
        oci=oci_version(oci),
        nri=nri_state(tomllib.loads(containerd)),
        delivery=delivery,
        helm=helm_version(helm),
    )


def described_real_node(control_plane: ControlPlane, node: RealNode, delivery: str, helm: str) -> TriedNode:
    """One in namespaces of this machine, with its kernel and cgroups, and without an init of its own."""

    def here(command: str) -> str:
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout

    return described(
        control_plane,
        node.name,
        shell=here,
        containerd=(node.folder / "containerd.toml").read_text(),
        oci=here(f"{find(['runc'])['runc']} --version"),
        init="",
        delivery=delivery,
        helm=helm,
    )


def kernel_version(text: str) -> str:
    """Without the flavour behind it: `6.1.0-56` of `6.1.0-56-amd64`."""
    found = re.match(r"\d[\d.]*\d(-\d+(?=-|$))?", text)
    assert found, f"{text} is no kernel's version"
    return found[0]


def systemd_version(text: str) -> str:
    """Of the first line of `systemctl --version`; empty for an empty text."""
    return " ".join(text.split()[:2])


def oci_version(text: str) -> str:
    """Of the first line of `runc --version`, or crun's; without the distribution's own part."""
    name, _, version = text.partition("\n")[0].partition(" version ")
    return f"{name} {version.partition('+')[0]}".strip()


def helm_version(text: str) -> str:
    """Of `helm version --short`; empty for an empty text."""
    return text.strip().removeprefix("v").partition("+")[0]


def nri_state(containerd: dict[str, Any]) -> str:
    """Of containerd's configuration: validator, on, off."""
    nri = containerd["plugins"]["io.containerd.nri.v1.nri"]
    if nri["disable"]:
        return "off"
    return "validator" if nri["default_validator"]["enable"] else "on"
