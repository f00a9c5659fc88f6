"""The cluster of the current kubeconfig (kind, minikube, a test cluster), borrowed for the length of a block.

Only with CLUSTER=current. It gets Nodes of ours, played by a process that runs here, and the project's
chart; agents and operator run here as well. All these objects have a label, and are deleted at the end, or, after
kill -9, by the next use of that cluster. A cluster with objects of another owner is not changed.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from nodedevice_api.names import AGENTS_NAMESPACE, GROUP
from nodedevice_operator.errors import CredentialsError

from hack import yaml_text
from tests.cluster import node_player, nodes
from tests.cluster.api import Client, open_client
from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane.certificates import write_private
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.control_plane.layout import claim
from tests.cluster.errors import ClusterError, CommandError
from tests.cluster.local import leftovers
from tests.cluster.local.owner_label import LABEL, Holder, Mark
from tests.cluster.processes.processes import Process, removed_at_the_end

_OLDEST_MINOR: Final = 33


class CurrentClusterError(ClusterError):
    """The cluster of the current kubeconfig cannot be used."""


def open_cluster(folder: Path, progress: Callable[[str], None]) -> Cluster:
    """The cluster that CLUSTER names: a control plane of our own when it is empty, or `current`. Raises ClusterError."""
    if is_current_wanted():
        return CurrentCluster.start(folder, progress)
    return ControlPlane.start(folder, progress)


def is_current_wanted() -> bool:
    """Whether CLUSTER asks for the cluster of the current kubeconfig. Raises CurrentClusterError for an unknown value."""
    wanted = os.environ.get("CLUSTER", "")
    if wanted not in ("", "current"):
        raise CurrentClusterError(
            f"CLUSTER is {wanted!r}: leave it empty for a cluster made for this, or say `current`"
        )
    return wanted == "current"


class CurrentCluster(Cluster):
    """Made by `start`. Records the objects that it created in the cluster, and deletes them in stop()."""

    # keeps the pods of the cluster's other users off them
    taints = (nodes.LENT_TAINT,)

    def __init__(
        self, folder: Path, kubeconfig: Path, client: Client, kubectl: Path, version: str, player: Process
    ) -> None:
        super().__init__(folder, kubeconfig, client, kubectl, version)
        self._player = player
        self._mark = Mark.own()
        self.labels = {LABEL: str(self._mark)}

    @classmethod
    def start(cls, folder: Path, progress: Callable[[str], None] = lambda _: None) -> Self:
        """Check the cluster, and begin to play Nodes in it. folder: made for it, and removed at the end.

        Raises CurrentClusterError, with a remedy, if no cluster is configured or it is unsuitable; BinaryError;
        ComponentError.
        """
        binaries = find(["kubectl"], progress)
        folder = folder.absolute()
        claim(folder)
        with ExitStack() as undo:
            undo.enter_context(removed_at_the_end(folder))
            kubeconfig, context = _take_kubeconfig(binaries["kubectl"], folder)
            player = node_player.player(kubeconfig, cls.played_by, folder / "node-player.log")
            client = undo.enter_context(_client(kubeconfig))
            cluster = cls(folder, kubeconfig, client, binaries["kubectl"], "", player)
            cluster.version = cluster._usable_version(context)
            cluster._take_leftovers(context, progress)
            progress(f"using the cluster of the context {context}, Kubernetes {cluster.version}")
            undo.callback(player.kill)
            player.start()
            undo.callback(cluster._clean_up, progress)
            cluster._undo = undo.pop_all()
            return cluster

    def verify_alive(self) -> None:
        self._player.verify_alive()

    def wait(self) -> None:
        if self._player.pid is not None:
            os.waitid(os.P_PID, self._player.pid, os.WEXITED | os.WNOWAIT)
        self.verify_alive()

    def apply(self, manifest: str) -> None:
        """Like any cluster's, but each document gets our mark; pods tolerate our Nodes' taint."""
        documents = [document for document in yaml_text.load_all(manifest) if document]
        for document in documents:
            document["metadata"]["labels"] = {**(document["metadata"].get("labels") or {}), **self.labels}
            if document["kind"] == "Pod":
                document["spec"].setdefault("tolerations", []).append(nodes.toleration())
        super().apply(yaml_text.dump_all(documents))

    def add_nodes(self, names: Sequence[str], wait_ready: bool = True) -> None:
        """Like any cluster's. Raises CurrentClusterError, and creates nothing, if a Node has one of these names."""
        if taken := [name for name in self._names("nodes") if name in names]:
            raise CurrentClusterError(
                f"the cluster has a Node {' and '.join(taken)} already, which is not changed: use another cluster"
            )
        super().add_nodes(names, wait_ready)

    def add_namespace(self, name: str) -> None:
        if self._names("namespaces", f"--field-selector=metadata.name={name}"):
            raise CurrentClusterError(
                f"the cluster has a namespace {name} already: delete it first, or use another cluster"
            )
        super().add_namespace(name)

    def _usable_version(self, context: str) -> str:
        """Its version. Raises CurrentClusterError if it is too old, or has objects of ours with another owner."""
        unmarked = f"--selector=!{LABEL}"
        try:
            version = yaml_text.load(self.kubectl("version", "-o", "yaml"))["serverVersion"]
            taken = [name for name in self._names("crds", unmarked) if name.endswith(f".{GROUP}")]
            spaces = self._names("namespaces", unmarked)
        except CommandError as exc:
            # not stdout: kubectl prints its own version there even without a response from the server
            raise CurrentClusterError(
                f"the cluster of the context {context} cannot be used: {exc.stderr.strip()}\n"
                "  remedy: is the cluster running, and may you list its objects? Start it, or choose another one with"
                " `kubectl config use-context`"
            ) from exc
        taken += [name for name in spaces if name in (SYSTEM_NAMESPACE, AGENTS_NAMESPACE)]
        if int("".join(filter(str.isdigit, version["minor"]))) < _OLDEST_MINOR:
            raise CurrentClusterError(
                f"the cluster of the context {context} has Kubernetes {version['gitVersion']}; 1.{_OLDEST_MINOR} or newer is needed"
            )
        if taken:
            raise CurrentClusterError(
                f"the cluster of the context {context} has nodedevice already ({', '.join(taken)}), and is not changed: use"
                ' another one, or uninstall it there, kinds and namespace too ("Remove" in charts/nodedevice/README.md)'
            )
        return str(version["gitVersion"])

    def _take_leftovers(self, context: str, progress: Callable[[str], None]) -> None:
        """Delete the objects of a killed run. Raises CurrentClusterError if that run may still exist."""
        things = leftovers.found(self)
        for mark in things:
            if mark.holder() is Holder.RUNS:
                raise CurrentClusterError(
                    f"process {mark.pid} of this machine, another demo or `make up`, is using the cluster of the context"
                    f" {context}: end it first (`make down`), or use another cluster"
                )
            if mark.holder() is Holder.IS_ELSEWHERE:
                raise CurrentClusterError(
                    f"the cluster of the context {context} has leftovers of a demo ({', '.join(things[mark])}), from another"
                    " machine or before this one was booted. If that has ended, delete them:\n  "
                    + "\n  ".join(leftovers.commands(mark))
                )
        for mark, names in things.items():
            progress(f"taking away what process {mark.pid} left when it was killed: {', '.join(names)}")
            leftovers.take_away(self, mark)

    def _names(self, kind: str, *flags: str) -> list[str]:
        path = '{range .items[*]}{.metadata.name}{"\\n"}{end}'
        return self.kubectl("get", kind, *flags, "-o", f"jsonpath={path}").split()

    def _clean_up(self, progress: Callable[[str], None]) -> None:
        """Delete everything of ours; the programs have already ended."""
        # a second Ctrl-C would leave objects there
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        progress("deleting everything of this run from the cluster")
        leftovers.take_away(self, self._mark)


def _take_kubeconfig(kubectl: Path, folder: Path) -> tuple[Path, str]:
    """A copy with the current context alone, and that context's name: a later change of the context has no effect."""
    view = [str(kubectl), "config", "view", "--minify", "--flatten", "--raw", "-o", "yaml"]
    done = subprocess.run(view, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    content: dict[str, Any] = (yaml_text.load(done.stdout) or {}) if done.returncode == 0 else {}
    if not content.get("clusters"):
        error = done.stderr.strip() or "it names no cluster"
        raise CurrentClusterError(
            f"no current kubeconfig: {error}\n  remedy: set KUBECONFIG, or `kubectl config use-context`"
        )
    path = folder / "admin.kubeconfig"
    write_private(path, done.stdout.encode())
    return path, str(content["current-context"])


def _client(kubeconfig: Path) -> Client:
    try:
        return open_client(kubeconfig)
    except CredentialsError as exc:
        raise CurrentClusterError(f"the current kubeconfig cannot be used: {exc}") from exc
