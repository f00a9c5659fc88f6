"""A real node of a control plane: containerd and the kubelet, on a machine of its own within this one.

    with RealNode.start(control_plane, "node-1", folder) as node:
        node.kubelet.kill(); node.start_kubelet()        the same for containerd
        node.reboot()                                    every process gone at once; state kept, new boot id

Needs root; `why_not_here` in node_checks says what else. Nothing of it outlives the process that started it, not even after
kill -9: no process, mount, network link, cgroup or file.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.cluster.api import Client
from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.control_plane.layout import claim
from tests.cluster.errors import CommandError
from tests.cluster.node import cgroups as node_cgroups
from tests.cluster.node import containerd, kubelet
from tests.cluster.node import network as node_network
from tests.cluster.node.layout import BINARIES, NodeLayout, NodeOptions, choose_key, lay_out
from tests.cluster.node.leftovers import remove_cgroups
from tests.cluster.node.machine import MachineProcess
from tests.cluster.node.network import NodeNetwork
from tests.cluster.nodes import is_schedulable
from tests.cluster.processes.processes import removed_at_the_end

_LEFTOVERS = Path(__file__).with_name("leftovers.py")
_READY_SECONDS = 60.0
_ANSWER_SECONDS = 2.0


class RealNode:
    """A running node, made by `start`. Use it as a context manager, or call stop()."""

    def __init__(self, layout: NodeLayout, client: Client) -> None:
        self.name = layout.name
        self.folder = layout.folder
        self.machine = layout.machine
        self.containerd = layout.containerd
        self.kubelet = layout.kubelet
        self._layout = layout
        self._client = client
        self._undo = ExitStack()

    @classmethod
    def start(
        cls,
        control_plane: ControlPlane,
        name: str,
        folder: Path,
        progress: Callable[[str], None] = lambda _: None,
        options: NodeOptions | None = None,
    ) -> Self:
        """Start one in `folder`, which is made, and removed again at the end; its path has to be short. Ready when this
        returns.

        Raises ClusterError: a missing program, a folder in use, or a process that does not start.
        """
        binaries = find(BINARIES, progress)
        folder = folder.absolute()
        claim(folder)
        key = choose_key()
        with ExitStack() as undo:
            leftovers = [sys.executable, "-I", "-S", str(_LEFTOVERS), f"nd{key}", f"nd{key}"]
            undo.enter_context(removed_at_the_end(folder, leftovers))
            layout = lay_out(control_plane, name, folder, binaries, key, options or NodeOptions())
            node = cls(layout, control_plane.client)
            undo.callback(layout.machine.power_off)
            undo.callback(layout.kubelet.kill)
            node_network.create(layout.network)
            node._boot()
            node.import_images(layout.archive)
            node.start_kubelet()
            node.wait_ready()
            progress(f"node {name} is Ready")
            node._undo = undo.pop_all()
            return node

    @property
    def address(self) -> str:
        return self.network.address

    @property
    def network(self) -> NodeNetwork:
        return self._layout.network

    def outside(self, path: str) -> Path:
        """This machine's path for a path of the node."""
        return self.machine.outside(path)

    def process(self, name: str, command: Sequence[str]) -> MachineProcess:
        """A program on the node, with a log of that name; not started yet."""
        return self.machine.process(name, command, self.folder / "logs" / f"{name}.log")

    def start_containerd(self) -> None:
        """Start it, and wait until it responds. Raises ComponentError."""
        self.containerd.start()
        self.containerd.wait_ready(lambda: self._ctr("version", check=False) is not None, _READY_SECONDS)

    def start_kubelet(self) -> None:
        """Start it, and wait until it reports healthy. Raises ComponentError."""
        self.kubelet.start()
        self.kubelet.wait_ready(self._kubelet_answers, _READY_SECONDS)

    def wait_ready(self) -> None:
        """Wait until the scheduler would use the Node. Raises ComponentError."""
        self.kubelet.wait_ready(lambda: is_schedulable(self._client, self.name), _READY_SECONDS)

    def power_off(self) -> None:
        """Ends every process of the node at once, including containers; the disk stays."""
        self.machine.power_off()
        remove_cgroups(self._layout.cgroup)

    def power_on(self) -> None:
        """Start containerd and the kubelet of a stopped node again, under another boot id."""
        self._boot()
        self.start_kubelet()

    def reboot(self) -> None:
        """Off and on. The caller must restart its own programs on the node."""
        self.power_off()
        self.power_on()

    def import_images(self, archive: Path) -> None:
        """Let pods use the images of an archive, as docker or buildah writes it. Raises CommandError."""
        self._ctr("--namespace", "k8s.io", "images", "import", str(archive))

    def tag_image(self, reference: str, another: str) -> None:
        """Add another name to an image; the name may have been another image's. Raises CommandError."""
        self._ctr("--namespace", "k8s.io", "images", "tag", "--force", reference, another)

    def container_specification(self, namespace: str, pod: str, container: str) -> dict[str, Any]:
        """The runtime's specification of a container, in the form of the OCI runtime specification."""
        labels = {"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": pod}
        wanted = {**labels, "io.kubernetes.container.name": container, "io.cri-containerd.kind": "container"}
        filters = ",".join(f'labels."{name}"=={value}' for name, value in wanted.items())
        listed = self._ctr("--namespace", "k8s.io", "containers", "list", "--quiet", filters)
        assert listed, f"the runtime has no container {container} of pod {namespace}/{pod}"
        info = self._ctr("--namespace", "k8s.io", "containers", "info", listed.split()[-1])
        assert info
        specification: dict[str, Any] = json.loads(info)["Spec"]
        return specification

    def verify_alive(self) -> None:
        """Raise ComponentError, with the tail of its log, when a process has ended by itself."""
        self.machine.verify_on()
        for process in (self.containerd, self.kubelet):
            process.verify_alive()

    def stop(self) -> None:
        """End every process and remove everything that was created. Does nothing if already stopped."""
        self._undo.close()

    def _boot(self) -> None:
        self.machine.boot()
        node_cgroups.create(self._layout.cgroup)
        self.start_containerd()

    def _ctr(self, *arguments: str, check: bool = True) -> str | None:
        """The output of containerd's own tool; None if it failed and `check` is not set. Raises CommandError."""
        command = [str(self._layout.ctr), "--address", str(self.outside(containerd.SOCKET)), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0 and check:
            raise CommandError(["ctr", *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout if done.returncode == 0 else None

    def _kubelet_answers(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://{self.address}:{kubelet.HEALTH_PORT}/healthz", timeout=_ANSWER_SECONDS
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
