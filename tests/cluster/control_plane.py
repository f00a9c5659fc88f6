"""A real Kubernetes control plane of this user's own, on loopback, for as long as somebody needs it.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK run as processes; no container, no root, no network. Nothing
of it outlives the process that started it, not even after kill -9, and its folder goes with it.
"""

import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lightkube import Client, KubeConfig
from lightkube.models.authentication_v1 import BoundObjectReference, TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, ServiceAccountToken

from tests.cluster import kubeconfigs, namespaces, nodes
from tests.cluster.binaries import find
from tests.cluster.bring_up import bring_up, start_apiserver
from tests.cluster.components import ISSUER, Ports
from tests.cluster.errors import CommandError
from tests.cluster.health import get
from tests.cluster.layout import BINARIES, Layout, claim, lay_out
from tests.cluster.processes import removed_at_the_end, reserved_ports

_TOKEN_SECONDS = 24 * 3600


class ControlPlane:
    """A running control plane, made by `start`. Use it as a context manager, or call stop()."""

    def __init__(self, layout: Layout, binaries: Mapping[str, Path], client: Client) -> None:
        self.folder = layout.folder
        self.url = layout.ports.url
        self.admin_kubeconfig = layout.admin_kubeconfig
        self.audit_log = layout.audit_log
        self.authority = layout.authority
        self.client = client
        self.version: str = json.loads(get(layout.ports.apiserver, "/version", layout.tls))["gitVersion"]
        self._layout = layout
        self._kubectl = binaries["kubectl"]
        self._undo = ExitStack()

    @classmethod
    def start(cls, folder: Path, say: Callable[[str], None] = lambda _: None) -> Self:
        """Start one in `folder`, which is made, and removed again at the end. Ready when this returns.

        say: told what is being done, a line at a time; the first time, programs are built, which takes minutes.
        Raises BinaryError, FolderError, or ComponentError with the tail of a log; then nothing is left behind.
        """
        binaries = find(BINARIES, say)
        folder = folder.absolute()
        claim(folder)
        with ExitStack() as undo:
            undo.enter_context(removed_at_the_end(folder))
            ports = Ports(*undo.enter_context(reserved_ports(len(fields(Ports)))))
            layout = lay_out(folder, binaries, ports)
            for process in layout.processes:
                # all they could still save is thrown away with the folder, so they are not asked to end in order
                undo.callback(process.kill)
            config = KubeConfig.from_file(layout.admin_kubeconfig)
            client = undo.enter_context(Client(config, trust_env=False))
            bring_up(layout, client, say)
            control_plane = cls(layout, binaries, client)
            control_plane._undo = undo.pop_all()
            return control_plane

    def stop(self) -> None:
        """End every process and remove the folder. Stopped already: nothing happens."""
        self._undo.close()

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the admin and return what it printed to stdout.

        Raises CommandError when it ends with an error and `check` is set, and ComponentError when a process is gone.
        """
        done = subprocess.run(
            [str(self._kubectl), *args],
            check=False,
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            # its discovery cache would otherwise be shared with the user's own clusters
            env={**os.environ, "KUBECONFIG": str(self.admin_kubeconfig), "HOME": str(self.folder)},
        )
        if done.returncode != 0:
            self.verify_alive()
        if done.returncode != 0 and check:
            raise CommandError(["kubectl", *args], done.returncode, done.stdout, done.stderr)
        return done.stdout

    def apply(self, manifest: str) -> None:
        """Server-side apply of one or more YAML documents, as the admin."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=manifest)

    def add_node(self, name: str, wait_ready: bool = True) -> None:
        """Make a Node played by KWOK: Ready and schedulable when this returns, if wait_ready. Raises TimeoutError."""
        self.add_nodes([name], wait_ready)

    def add_nodes(self, names: Sequence[str], wait_ready: bool = True) -> None:
        """Make many Nodes played by KWOK; they get ready side by side."""
        for name in names:
            nodes.create_node(self.client, name, self.version)
        if wait_ready:
            nodes.wait_schedulable(self.client, names)

    def remove_node(self, name: str) -> None:
        """Delete a Node; its pods are deleted by the controller manager some time after."""
        self.client.delete(Node, name)

    def add_namespace(self, name: str) -> None:
        """Make a namespace in which pods can be made when this returns. Raises TimeoutError."""
        namespaces.create_namespace(self.client, name)

    def remove_namespace(self, name: str) -> None:
        """Delete a namespace: its pods are gone when this returns, all else follows soon. Raises TimeoutError."""
        namespaces.remove_namespace(self.client, name)

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path, node_name: str | None = None) -> Path:
        """Write a kubeconfig (mode 0600) with a fresh token of a ServiceAccount, valid for a day. Returns `path`.

        node_name: the token is bound to that Node, as a mounted one of a pod on it is: it carries the claim
        `authentication.kubernetes.io/node-name`, and ends with the Node object.
        """
        bound_to = None
        if node_name is not None:
            node = self.client.get(Node, node_name)
            assert node.metadata is not None
            bound_to = BoundObjectReference(apiVersion="v1", kind="Node", name=node_name, uid=node.metadata.uid)
        spec = TokenRequestSpec(audiences=[ISSUER], expirationSeconds=_TOKEN_SECONDS, boundObjectRef=bound_to)
        issued = self.client.create(ServiceAccountToken(metadata=ObjectMeta(), spec=spec), name, namespace=namespace)
        assert issued.status is not None
        assert issued.status.token is not None
        return kubeconfigs.write_for_token(path, self.url, self.authority.file, issued.status.token)

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """Every request that the API server has finished so far (a watch: ended), oldest first."""
        with self.audit_log.open(encoding="utf-8") as log:
            for line in log:
                if line.endswith("\n"):  # the last one may be in the writing
                    yield json.loads(line)

    def stop_apiserver(self) -> None:
        """End the API server as a crash would; the other processes stay, and try until it is back.

        Asked to end in order, it would first wait for its watchers, which takes longer than most outages that are tested.
        """
        self._layout.apiserver.kill()

    def start_apiserver(self) -> None:
        """Start the API server again: same port, same data, same certificates. Ready when this returns."""
        start_apiserver(self._layout)

    def stop_controllers(self) -> None:
        """End the scheduler, the controller manager and KWOK for good: etcd and the API server are all that is left."""
        for process in (self._layout.kwok, self._layout.controller_manager, self._layout.scheduler):
            process.kill()

    def pids(self) -> dict[str, int]:
        """Process ID of each process that runs, by its name."""
        return {process.name: process.pid for process in self._layout.processes if process.pid is not None}

    def verify_alive(self) -> None:
        """Raise ComponentError, with the tail of its log, when a process has ended by itself."""
        for process in self._layout.processes:
            process.verify_alive()

    def wait(self) -> None:
        """Block until a process ends by itself, and raise ComponentError then."""
        watched = [os.pidfd_open(pid) for pid in self.pids().values()]
        try:
            select.select(watched, [], [])
        finally:
            for descriptor in watched:
                os.close(descriptor)
        self.verify_alive()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
