"""`make uninstall`: prints the objects that stay; ALL=1 removes them as well.

Removes the writes of agents and operators itself, without the chart's hook, which needs an image that runs: an
install that never ran can be removed as well.
"""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodedevice_api.names import AGENTS_NAMESPACE

from hack.install import commands, facts, machine, nodes, owners, route, texts
from hack.install.arguments import Arguments
from hack.install.cluster import KINDS, Cluster
from hack.install.errors import InstallError
from hack.install.owners import Owner
from hack.install.route import STATE_DIR, Access
from hack.install.steps import Steps

# of an interrupted hook: Helm does not track them
_SWEPT: Final = "jobs,pods,roles,rolebindings,serviceaccounts,clusterroles,clusterrolebindings"
_PATIENCE: Final = "--timeout=2m"
_GOES_ON: Final = "the cluster continues with it; repeat the command, which waits for it"
# in every namespace, by Kubernetes itself
_OF_KUBERNETES: Final = ("configmap/kube-root-ca.crt", "serviceaccount/default")


@dataclass(frozen=True)
class Found:
    """Everything of nodedevice in the cluster. owner: None if it is not installed. images: by the nodes that have them.

    unreachable: names of nodes that have images of ours and that this machine cannot reach.
    """

    owner: Owner | None
    kinds: tuple[str, ...]
    cordons: tuple[str, ...]
    configs: tuple[str, ...]
    has_namespace: bool
    images: dict[Access, list[str]]
    unreachable: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.owner or self.kinds or self.has_namespace or any(self.images.values()))


def uninstall(arguments: Arguments, steps: Steps) -> None:
    """Raises InstallError or ClusterError."""
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
        cluster = Cluster(Path(scratch), steps.say, is_plan=arguments.is_plan)
        _, version = cluster.version()
        steps.say(f"context {cluster.context}, {cluster.server}, Kubernetes {version}")
        found = _found(cluster, arguments)
        if found.is_nothing:
            steps.say("nothing of nodedevice is in this cluster")
            return
        for line in lines(found, arguments):
            steps.say(line)
        if arguments.is_plan:
            steps.say("nothing was changed, as PLAN=1 asks for the plan alone")
            return
        _confirm(arguments)
        _remove(cluster, found, arguments, steps)
        if arguments.is_all:
            _remove_kept(cluster, found, arguments, steps)
    steps.say(f"done, {steps.summary}")


def lines(found: Found, arguments: Arguments) -> list[str]:
    """The parts that are removed, and the parts that stay, for people. Pure."""
    goes = [f"{found.owner}: agents, operators, and their changes to Nodes; pods keep running"] if found.owner else []
    kept = [f"the kind {kind}" for kind in found.kinds]
    kept += [f"NodeDeviceConfig {name}" for name in found.configs]
    kept += found.cordons
    kept += [f"the namespace {arguments.namespace}"] if found.has_namespace else []
    for access, names in found.images.items():
        kept += [f"image on {access.nodes}: {name}" for name in names]
        kept += [f"on {access.nodes}: {STATE_DIR}, the agent's checkpoint"]
    removed = [*goes, *kept] if arguments.is_all else goes
    printed = [f"removes {what}" for what in removed]
    if not arguments.is_all:
        printed += [f"keeps {what}" for what in kept]
        printed += [f"ALL=1 removes {'this, too' if goes else 'it'}"] if kept else []
    if found.unreachable:
        shown = ", ".join(found.unreachable[:3]) + (" and others" if len(found.unreachable) > 3 else "")
        printed.append(f"images and {STATE_DIR} on {shown} stay: these nodes cannot be reached from here")
    return printed


def _found(cluster: Cluster, arguments: Arguments) -> Found:
    listed = cluster.releases(arguments.owner)
    installed = owners.of_releases(listed) | owners.of_workloads(cluster.labelled_workloads())
    owners.check_alone(installed, arguments.owner)
    found = facts.nodes_of({"items": cluster.items("nodes")})
    images = _images(found, arguments)
    reached = {access.nodes for access in images}
    away = [node.name for node in found if node.name not in reached and nodes.ours(node.images)]
    return Found(
        owner=arguments.owner if installed else None,
        kinds=tuple(item["metadata"]["name"] for item in cluster.items("crds", *KINDS)),
        cordons=tuple(texts.cordons(cluster.items("nodedevices"))),
        configs=tuple(item["metadata"]["name"] for item in cluster.items("nodedeviceconfigs")),
        has_namespace=bool(cluster.get("namespace", arguments.namespace)),
        images=images,
        unreachable=tuple(away),
    )


def _images(found: Sequence[facts.Node], arguments: Arguments) -> dict[Access, list[str]]:
    """Images on the nodes that this machine can reach. All are removed in the same way."""
    here = machine.facts(route.sockets(found, arguments.containerd))
    images = {}
    for access in route.reachable(found, here, arguments.containerd):
        # nodes that do not respond stop nothing: they are listed as unreachable
        with contextlib.suppress(InstallError):
            images[access] = nodes.images_on(access)
    return images


def _confirm(arguments: Arguments) -> None:
    """Asks only before irreversible deletions. Raises InstallError."""
    if not arguments.is_all or arguments.is_sure:
        return
    if not commands.is_terminal():
        raise InstallError(
            "ALL=1 removes cordons and configurations permanently, and no terminal is available to confirm it",
            "add YES=1. Nothing was changed",
        )
    if input("uninstall: remove all of this? [y/N] ").strip().lower() not in ("y", "yes"):
        raise InstallError("not confirmed", "type y to remove it. Nothing was changed")


def _remove(cluster: Cluster, found: Found, arguments: Arguments, steps: Steps) -> None:
    """The part that an uninstall always removes; repeated, it continues."""
    if not found.owner:
        return
    workloads = [each for each in cluster.labelled_workloads() if each["metadata"]["namespace"] == arguments.namespace]
    steps.say("nodedevice-operator cleanup")
    with steps.timed("cleanup"):
        _clean_up(cluster, arguments, [each["metadata"]["name"] for each in workloads if each["kind"] == "DaemonSet"])
    steps.say("helm uninstall")
    with steps.timed("helm"):
        cluster.uninstall(found.owner)
        selector = f"app.kubernetes.io/name=nodedevice,app.kubernetes.io/instance={arguments.release}"
        cluster.kubectl("delete", _SWEPT, "--all-namespaces", "--selector", selector, "--ignore-not-found")


def _clean_up(cluster: Cluster, arguments: Arguments, daemon_sets: Sequence[str]) -> None:
    values = (cluster.release(arguments.owner).get("config") or {}).get("agents") or {}
    leases = str(values.get("leaseNamespace") or AGENTS_NAMESPACE)
    command = [sys.executable, "-m", "nodedevice_operator", "cleanup", "--yes"]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--namespace", arguments.namespace]
    command += ["--leases-namespace", leases, "--delete-leases-namespace"]
    command += [word for name in daemon_sets for word in ("--daemon-set", name)]
    commands.run(command, "nodedevice-operator cleanup")


def _remove_kept(cluster: Cluster, found: Found, arguments: Arguments, steps: Steps) -> None:
    """The part that an uninstall keeps. Nodes come last, after all their programs have ended."""
    with steps.timed("kinds"):
        if found.kinds:
            steps.say("kinds, with all of their objects")
            cluster.kubectl("delete", "crds", *found.kinds, "--ignore-not-found", _PATIENCE, remedy=_GOES_ON)
        if found.has_namespace:
            _remove_namespace(cluster, arguments.namespace, steps)
    with steps.timed("nodes"):
        for access in found.images:
            steps.say(f"images and {STATE_DIR} on {access.nodes}")
            nodes.remove_images(access)
            nodes.remove_state(access)


def _remove_namespace(cluster: Cluster, namespace: str, steps: Steps) -> None:
    """Remove it, unless it has other objects."""
    listed = cluster.kubectl("api-resources", "--namespaced", "--verbs=list,delete", "--output=name").split()
    kinds = ",".join(kind for kind in listed if not kind.startswith("events"))
    left = cluster.kubectl("get", kinds, "--namespace", namespace, "--output=name", "--ignore-not-found").split()
    others = [name for name in left if name not in _OF_KUBERNETES]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        steps.say(
            f"the namespace {namespace} stays: it has {', '.join(others[:3])}{more}, which nodedevice did not make"
        )
        return
    steps.say(f"the namespace {namespace}")
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", _PATIENCE, remedy=_GOES_ON)
