"""Operations for any cluster: kubectl, Nodes without a kubelet, namespaces, tokens."""

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from tests.cluster import nodes
from tests.cluster.api import ApiError, Client, Namespace, Node, Object, Pod, ServiceAccount, ServiceAccountToken
from tests.cluster.control_plane import kubeconfigs
from tests.cluster.errors import CommandError
from tests.cluster.waiting import wait_until

# a cluster of `make up` stays until `make down`, and these are never renewed
_TOKEN_SECONDS = 365 * 24 * 3600


class Cluster(ABC):
    """A cluster with an admin's kubeconfig. Use it as a context manager, or call stop()."""

    # the label value that selects its Nodes for the program that plays them
    played_by = nodes.PLAYED_BY_US
    # of each Node and namespace that is made
    labels: Mapping[str, str] = {}
    # of each Node that is made
    taints: Sequence[Object] = ()

    def __init__(self, folder: Path, admin_kubeconfig: Path, client: Client, kubectl: Path, version: str) -> None:
        self.folder = folder
        self.admin_kubeconfig = admin_kubeconfig
        self.client = client
        self.version = version
        self._kubectl = kubectl
        self._undo = ExitStack()

    @abstractmethod
    def verify_alive(self) -> None:
        """Raise ComponentError, with the tail of its log, if a process of ours has ended by itself."""

    @abstractmethod
    def wait(self) -> None:
        """Block until a process of ours ends by itself, and raise ComponentError then."""

    def stop(self) -> None:
        """End all started processes, and remove all created objects. Does nothing if already stopped."""
        self._undo.close()

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> str:
        """Run kubectl as the admin and return its stdout.

        Raises CommandError when it ends with an error and `check` is set, and ComponentError when a process has
        ended.
        """
        done = subprocess.run(
            [str(self._kubectl), *args],
            check=False,
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            # otherwise its discovery cache would be shared with the user's own clusters
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
        """Create a played Node: Ready and schedulable when this returns, if wait_ready. Raises TimeoutError."""
        self.add_nodes([name], wait_ready)

    def add_nodes(self, names: Sequence[str], wait_ready: bool = True) -> None:
        """Create many played Nodes; they become ready in parallel."""
        for name in names:
            nodes.create_node(self.client, name, self.version, self.played_by, self.labels, self.taints)
        if wait_ready:
            nodes.wait_schedulable(self.client, names)

    def remove_node(self, name: str) -> None:
        """Delete a Node; the controller manager deletes its pods later."""
        self.client.delete(Node, name)

    def add_namespace(self, name: str) -> None:
        """Create a namespace that accepts pods when this returns. Raises TimeoutError."""
        create_namespace(self.client, name, self.labels)

    def remove_namespace(self, name: str, grace_seconds: int | None = None) -> None:
        """Delete a namespace: its pods are gone when this returns, its other objects follow soon. Raises TimeoutError.

        grace_seconds: of its pods; 0 if no kubelet ends them.
        """
        remove_namespace(self.client, name, grace_seconds)

    def service_account_kubeconfig(self, namespace: str, name: str, path: Path, node_name: str | None = None) -> Path:
        """Write a kubeconfig (mode 0600) with a fresh token of a ServiceAccount, valid for a year. Returns `path`.

        node_name: the token is bound to that Node, as a mounted one of a pod on it is: it carries the claim
        `authentication.kubernetes.io/node-name`, and ends with the Node object.
        """
        bound_to = None
        if node_name is not None:
            node = self.client.get(Node, node_name)
            bound_to = Object(apiVersion="v1", kind="Node", name=node_name, uid=node.metadata.uid)
        # no audience: the API server itself
        spec = Object(audiences=[], expirationSeconds=_TOKEN_SECONDS, boundObjectRef=bound_to)
        issued = self.client.create(ServiceAccountToken(metadata=Object(), spec=spec), name, namespace=namespace)
        return kubeconfigs.write_for_token(path, self.admin_kubeconfig, issued.status.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def create_namespace(client: Client, name: str, labels: Mapping[str, str] = MappingProxyType({})) -> None:
    """Create a namespace, and wait for the ServiceAccount `default`, which pods need."""
    client.create(Namespace(metadata=Object(name=name, labels=dict(labels))))
    wait_until(lambda: has_default_service_account(client, name), f"namespace {name} has its default ServiceAccount")


def remove_namespace(client: Client, name: str, grace_seconds: int | None = None) -> None:
    """Delete a namespace. Its pods are deleted first and are gone when this returns.

    grace_seconds: of those pods; None: each its own. On a node without a kubelet, 0 deletes them at once. Otherwise
    the controller manager deletes them a minute after their Node.
    The namespace controller would wait for their grace period: it retries only after half of that.
    """
    client.deletecollection(Pod, namespace=name, grace_period=grace_seconds)
    wait_until(lambda: not any(client.list(Pod, namespace=name)), f"no pods are left in namespace {name}")
    client.delete(Namespace, name)


def has_default_service_account(client: Client, namespace: str) -> bool:
    try:
        client.get(ServiceAccount, "default", namespace=namespace)
    except ApiError as exc:
        if exc.status.code == 404:
            return False
        raise
    return True


def a_pod(
    name: str, namespace: str, limits: Mapping[str, int], node_name: str | None = None, scheduler: str | None = None
) -> dict[str, Any]:
    """A pod of one container. node_name: binds it, past any scheduler. scheduler: None: the cluster's own."""
    container = {"name": "main", "image": "registry.example/app", "resources": {"limits": dict(limits)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node_name, "schedulerName": scheduler, "containers": [container]},
    }
