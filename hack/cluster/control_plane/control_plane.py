"""A real Kubernetes control plane of this user's own, on loopback, for as long as somebody needs it.

etcd, kube-apiserver, kube-scheduler, kube-controller-manager and KWOK run as processes; no container, no root, no network. Nothing
of it outlives the process that started it, not even after kill -9, and its folder goes with it.
"""

import json
import os
import select
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import httpx2
from lightkube import Client, KubeConfig

from hack.cluster.build.binaries import find
from hack.cluster.cluster import Cluster
from hack.cluster.control_plane.bring_up import bring_up, start_apiserver
from hack.cluster.control_plane.components import SERVICE_NETWORK, Ports
from hack.cluster.control_plane.health import get
from hack.cluster.control_plane.layout import BINARIES, Layout, claim, lay_out
from hack.cluster.processes.processes import removed_at_the_end, reserved_ports

# A crowd of pods that is deleted at once, on a machine that is busy, takes longer than the library's ten seconds.
_ANSWER_SECONDS = 60.0


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
        cls, folder: Path, say: Callable[[str], None] = lambda _: None, service_network: str = SERVICE_NETWORK
    ) -> Self:
        """Start one in `folder`, which is made, and removed again at the end. Ready when this returns.

        say: told what is being done, a line at a time; the first time, programs are built, which takes minutes.
        service_network: of the addresses of Services, none of which leads anywhere; in_cluster_api makes the API server's do so.
        Raises BinaryError, FolderError, or ComponentError with the tail of a log; then nothing is left behind.
        """
        binaries = find(BINARIES, say)
        folder = folder.absolute()
        claim(folder)
        with ExitStack() as undo:
            undo.enter_context(removed_at_the_end(folder))
            ports = Ports(*undo.enter_context(reserved_ports(len(fields(Ports)))))
            layout = lay_out(folder, binaries, ports, service_network)
            for process in layout.processes:
                # all they could still save is thrown away with the folder, so they are not asked to end in order
                undo.callback(process.kill)
            config = KubeConfig.from_file(layout.admin_kubeconfig)
            client = undo.enter_context(Client(config, trust_env=False, timeout=httpx2.Timeout(_ANSWER_SECONDS)))
            bring_up(layout, client, say)
            control_plane = cls(layout, binaries, client)
            control_plane._undo = undo.pop_all()
            return control_plane

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
