"""A real Kubernetes control plane of this user's own, on loopback, for the length of a block.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager and a player of nodes run as processes; no container, no
root, no network. All of it ends with the process that started it, even after kill -9, and its folder is removed.
It is ready when a test may begin: the API server is ready with its bootstrap roles, and a pod can be created in the
namespace `default`, which needs the ServiceAccount that the controller manager creates there.
"""

import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.cluster.api import Client, open_client
from tests.cluster.build.binaries import find
from tests.cluster.cluster import Cluster, has_default_service_account
from tests.cluster.control_plane import audit_log
from tests.cluster.control_plane.components import SERVICE_NETWORK, Ports
from tests.cluster.control_plane.health import answers, get
from tests.cluster.control_plane.layout import CONTROL_PLANE, Layout, claim, lay_out
from tests.cluster.processes.processes import Process, removed_at_the_end, reserved_ports


class ControlPlane(Cluster):
    """A running control plane, made by `start`."""

    def __init__(self, layout: Layout, binaries: Mapping[str, Path], client: Client) -> None:
        version = json.loads(get(layout.ports.apiserver, "/version", layout.tls))["gitVersion"]
        super().__init__(layout.folder, layout.admin_kubeconfig, client, binaries["kubectl"], version)
        self.url = layout.ports.url
        self.audit_log = layout.audit_log
        self.authority = layout.authority
        self._layout = layout

    @classmethod
    def start(
        cls,
        folder: Path,
        progress: Callable[[str], None] = lambda _: None,
        service_network: str = SERVICE_NETWORK,
    ) -> Self:
        """Start one in `folder`, which is made, and removed again at the end. Ready when this returns.

        progress: called with a line for each step; the first time, programs are built, which takes minutes.
        service_network: range of the Services' addresses. They are unreachable; in_cluster_api makes the API server's
        reachable.
        Raises BinaryError, FolderError, or ComponentError with the tail of a log; then everything is cleaned up.
        """
        binaries = find(CONTROL_PLANE, progress)
        folder = folder.absolute()
        claim(folder)
        with ExitStack() as undo:
            undo.enter_context(removed_at_the_end(folder))
            ports = Ports(*undo.enter_context(reserved_ports(len(fields(Ports)))))
            layout = lay_out(folder, binaries, ports, service_network)
            for process in layout.processes:
                # their data is deleted with the folder, so they are killed
                undo.callback(process.kill)
            client = undo.enter_context(open_client(layout.admin_kubeconfig))
            bring_up(layout, client, progress)
            control_plane = cls(layout, binaries, client)
            control_plane._undo = undo.pop_all()
            return control_plane

    def audit_events(self) -> Iterator[dict[str, Any]]:
        """All completed requests of the API server (a watch: ended), oldest first."""
        return audit_log.requests(self.audit_log)

    def stop_apiserver(self) -> None:
        """End the API server like a crash; the controllers are paused until it is back.

        A graceful end would first wait for its watchers, which takes longer than most tested outages.
        Running controllers would find it late: client-go's reflectors back off to 30 to 60 s, and reset that only
        after two minutes without a failure. After outages of 20 s each, a namespace had its ServiceAccount 29 to over
        60 s late.
        """
        self._signal_controllers(signal.SIGSTOP)
        self._layout.apiserver.kill()
        audit_log.drop_half_line(self.audit_log)

    def start_apiserver(self) -> None:
        """Start the API server again: same port, same data, same certificates. Ready when this returns."""
        start_apiserver(self._layout)
        self._signal_controllers(signal.SIGCONT)

    def back_up(self, folder: Path) -> None:
        """Copy etcd's data into `folder`, which is made. The API server is down meanwhile."""
        with self._without_etcd():
            shutil.copytree(self._layout.etcd_data, folder)

    def restore(self, folder: Path) -> None:
        """Replace etcd's data by that copy: all objects return to the state of the copy. The API server is down
        meanwhile.
        """
        with self._without_etcd():
            shutil.rmtree(self._layout.etcd_data)
            shutil.copytree(folder, self._layout.etcd_data)

    @contextmanager
    def _without_etcd(self) -> Iterator[None]:
        self.stop_apiserver()
        self._layout.etcd.kill()
        yield
        start_etcd(self._layout)
        self.start_apiserver()

    def stop_controllers(self) -> None:
        """Permanently end all but etcd and the API server."""
        for process in self._layout.controllers:
            process.kill()

    def _signal_controllers(self, number: signal.Signals) -> None:
        """Send the signal to the running controllers."""
        for process in self._layout.controllers:
            if process.pid is not None:
                process.signal(number)

    def pids(self) -> dict[str, int]:
        """Process ID of each running process, by name."""
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


READY_SECONDS = 60.0


def bring_up(layout: Layout, client: Client, progress: Callable[[str], None]) -> None:
    """Start every process and wait until all are ready. Raises ComponentError with the tail of a log."""
    began = time.monotonic()
    start_etcd(layout)
    start_apiserver(layout)
    progress(f"kube-apiserver ready at {layout.ports.url} after {time.monotonic() - began:.1f} s")
    for process in layout.controllers:
        process.start()
    for process in layout.controllers:
        process.wait_ready(partial(_is_ready, layout, process), READY_SECONDS)
    layout.controller_manager.wait_ready(lambda: has_default_service_account(client, "default"), READY_SECONDS)
    progress(f"control plane ready after {time.monotonic() - began:.1f} s")


def start_etcd(layout: Layout) -> None:
    layout.etcd.start()
    layout.etcd.wait_ready(lambda: answers(layout.ports.etcd, "/health", layout.etcd_tls), READY_SECONDS)


def start_apiserver(layout: Layout) -> None:
    """Start the API server and wait until it is ready; the other processes reconnect by themselves."""
    layout.apiserver.start()
    layout.apiserver.wait_ready(lambda: answers(layout.ports.apiserver, "/readyz", layout.tls), READY_SECONDS)


def _is_ready(layout: Layout, process: Process) -> bool:
    if process is layout.node_player:
        return True
    port = layout.ports.scheduler if process is layout.scheduler else layout.ports.controller_manager
    return answers(port, "/healthz", layout.tls)
