"""A cluster for the chart: a real control plane, a real node whose pods reach it, and every image that a pod of it names.

    with ChartCluster.start(folder, say) as cluster:
        cluster.release.install(cluster.values)

Everything waits for what the API says, and gives up with the last state seen.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from nodedevice_api import names

from docs.tried_nodes import TriedNode
from hack import yaml_text
from tests.cluster.api import ApiError, Node, NodeDevice, Pod
from tests.cluster.build.binaries import find
from tests.cluster.build.images import write_program_archive
from tests.cluster.build.product_images import REGISTRY, ProductImage, product_images
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.cluster.node import network as node_network
from tests.cluster.node.in_cluster_api import reachable_from_pods
from tests.cluster.node.layout import NodeOptions
from tests.cluster.node.real_node import RealNode
from tests.cluster.waiting import wait_until
from tests.e2e.chart.workloads import VENDOR_IMAGE
from tests.e2e.recording import described_real_node

NAME = "nodedevice"
# Hooks and workloads: a Python process takes seconds to start on a busy machine.
PATIENCE = "180s"


class Release:
    """folder: for helm's own files and for values. helm: which one, `helm3` is the former. patience: of a wait."""

    def __init__(self, control_plane: ControlPlane, folder: Path, helm: str = "helm", patience: str = PATIENCE) -> None:
        self._helm = find([helm])[helm]
        self._folder = folder
        self._patience = patience
        folder.mkdir()
        homes = {f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **homes, "KUBECONFIG": str(control_plane.admin_kubeconfig)}

    def install(self, values: Mapping[str, Any], *flags: str, chart: Path | str = CHART) -> str:
        """Installed and ready when this returns. chart: a folder, an archive, or where it is published."""
        flags = ("--create-namespace", "--wait", "--timeout", self._patience, *flags)
        return self._do("install", NAME, str(chart), "--values", self._written(values), *flags)

    def upgrade(self, values: Mapping[str, Any], *flags: str, chart: Path = CHART) -> str:
        """To another version of the chart, or other values; ready when this returns."""
        flags = ("--wait", "--timeout", self._patience, *flags)
        return self._do("upgrade", NAME, str(chart), "--values", self._written(values), *flags)

    def test(self, *flags: str) -> str:
        """Run the chart's own test; returns its output. flags: by default such that what the test prints is a part of that."""
        return self._do("test", NAME, *(flags or ("--logs",)), "--timeout", self._patience)

    def uninstall(self, *flags: str) -> str:
        return self._do("uninstall", NAME, "--wait", "--timeout", self._patience, *flags)

    def version(self) -> str:
        """Helm's own."""
        return self._do("version", "--short")

    def is_installed(self) -> bool:
        return NAME in self._do("list", "--short").split()

    def package(self, version: str, chart: Path = CHART) -> Path:
        """An archive of the chart under that version."""
        self._do("package", str(chart), "--version", version, "--destination", str(self._folder))
        return self._folder / f"{NAME}-{version}.tgz"

    def shown_values(self, chart: Path) -> str:
        """The values of a packaged chart."""
        return self._do("show", "values", str(chart))

    def _written(self, values: Mapping[str, Any]) -> str:
        file = self._folder / "values.yaml"
        file.write_text(yaml_text.dump(dict(values)))
        return str(file)

    def _do(self, *arguments: str) -> str:
        command = [str(self._helm), *arguments, "--namespace", SYSTEM_NAMESPACE]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self._environment
        )
        if done.returncode != 0:
            raise CommandError(["helm", *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout


@contextmanager
def control_plane_and_node(folder: Path, progress: Callable[[str], None]) -> Iterator[tuple[ControlPlane, RealNode]]:
    """The node's pods reach the control plane. folder: made for it, its path short."""
    number = node_network.free_number()
    services = node_network.choose("", number).services
    options = NodeOptions(network=number, status_seconds=1)
    with (
        ControlPlane.start(folder / "cluster", progress, services) as control_plane,
        RealNode.start(control_plane, NODE, folder / "node", progress, options) as node,
        reachable_from_pods(control_plane, node),
    ):
        yield control_plane, node


Json = dict[str, Any]
# Images are started from a cold disk, and the machine may be busy.
PATIENCE_SECONDS = 120.0
AGENT, OPERATOR = "nodedevice-agent", "nodedevice-operator"
NODE = "node-1"
_STATE = "/var/lib/nodedevice"


class InstalledCluster:
    """A control plane, images that its node has, and helm. patience_seconds, helm_patience, every_seconds: of each wait.

    verify_alive: raises when the node has ended. values: what everybody who installs the chart here has to say, which is where the
    images are.
    """

    patience_seconds = PATIENCE_SECONDS
    helm_patience = PATIENCE
    every_seconds = 0.05

    def __init__(
        self,
        control_plane: ControlPlane,
        verify_alive: Callable[[], None],
        images: Mapping[str, ProductImage],
        folder: Path,
    ) -> None:
        self.control_plane = control_plane
        self.release = Release(control_plane, folder / "helm", patience=self.helm_patience)
        self.images = images
        self._verify_alive = verify_alive

    def values(self, **more: Any) -> Json:
        """Where the images are, and more at the top."""
        tags = {name: {"image": {"tag": self.images[program].tag}} for name, program in _PROGRAMS.items()}
        return _merged({"image": {"registry": REGISTRY}, **tags}, more)

    # -- what the API shows -----------------------------------------------------------------------------------------------

    def get(self, *what: str) -> Json:
        """One object or a list, by kubectl; empty where there is none. Where asked again and again: pod, pods, node_device(s)."""
        text = self.control_plane.kubectl("get", *what, "-o", "json", "--ignore-not-found")
        return dict(json.loads(text)) if text.strip() else {}

    def names_of(self, kind: str, *flags: str) -> set[str]:
        return {item["metadata"]["name"] for item in self.get(kind, *flags).get("items", [])}

    def node_device(self, resource: str, node: str = NODE) -> Json:
        """Empty where there is none, as `pod`."""
        return self._object(NodeDevice, names.node_device_name(node, resource))

    def node_devices(self) -> list[Json]:
        return [dict(each) for each in self.control_plane.client.list(NodeDevice)]

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self._object(Pod, name, namespace)

    def node_object(self, node: str = NODE) -> Json:
        return self._object(Node, node)

    def pods(self, namespace: str = "default", labels: dict[str, Any] | None = None) -> list[Json]:
        return [each.to_dict() for each in self.control_plane.client.list(Pod, namespace=namespace, labels=labels)]

    def _object(self, kind: Any, name: str, namespace: str | None = None) -> Json:
        try:
            found: Json = self.control_plane.client.get(kind, name, namespace=namespace).to_dict()
        except ApiError as error:
            if error.status.code == HTTPStatus.NOT_FOUND:
                return {}
            raise
        return found

    def capacity(self, node: str = NODE) -> dict[str, int]:
        """What the Node shows of resources of ours and of vendors'."""
        found = self.control_plane.client.get(Node, node)
        return {name: int(count) for name, count in (found.status.capacity or {}).items() if "/" in name}

    def wait_capacity(self, resource: str, count: int, node: str = NODE) -> None:
        self.wait(lambda: self.capacity(node).get(resource) == count, f"{node} shows {count} of {resource}")

    def containers(self, namespace: str, labels: dict[str, Any] | None = None) -> dict[str, tuple[str, int]]:
        """Container ID and number of restarts, by pod and container."""
        return {
            f"{pod['metadata']['name']}/{state['name']}": (state.get("containerID", ""), state["restartCount"])
            for pod in self.pods(namespace, labels)
            for state in pod["status"].get("containerStatuses", [])
        }

    # -- pods -----------------------------------------------------------------------------------------------------------

    def apply(self, *manifests: Json) -> None:
        self.control_plane.apply(yaml_text.dump_all(manifests))

    def run(self, pod: Json) -> None:
        """Make a pod, and wait until it runs."""
        self.apply(pod)
        name = pod["metadata"]["name"]
        self.wait_running(name)

    def wait_running(self, pod: str) -> None:
        self.wait(lambda: self.pod(pod).get("status", {}).get("phase") == "Running", f"pod {pod} runs")

    def report_of(self, pod: str) -> Json:
        """What the checker in a pod of `workloads.user` says that it got; waits for it."""
        self.wait(lambda: self.pod(pod)["status"]["phase"] != "Pending", f"pod {pod} has started")
        read = partial(self.control_plane.kubectl, "logs", pod, check=False)
        self.wait(lambda: bool(read()), f"pod {pod} says something", every_seconds=0.5)
        return dict(json.loads(read()))

    def agents_delivery(self) -> str:
        """How devices reach containers, as its NodeDevices say; waits for one."""

        def found() -> list[Json]:
            return [each for each in self.node_devices() if each.get("status")]

        self.wait(lambda: bool(found()), "there is a NodeDevice")
        return str(found()[0]["status"]["agent"]["delivery"])

    def wait(self, is_so: Callable[[], bool], what: str, every_seconds: float = 0.0) -> None:
        """Raises TimeoutError with all pods and what was last reported about them.

        every_seconds: longer than the cluster's where a node answers.
        """

        def poll() -> bool:
            self._verify_alive()
            return is_so()

        try:
            wait_until(poll, what, self.patience_seconds, every_seconds or self.every_seconds)
        except TimeoutError as exc:
            exc.add_note(self.state())
            raise

    def state(self) -> str:
        """For a person who has to find out what went wrong: pods, Events, logs of ours."""
        questions = [
            ("get", "pods,jobs,nodedevices", "-A", "-o", "wide"),
            ("get", "events", "-A", "--sort-by=.lastTimestamp"),
            *(("logs", "-n", SYSTEM_NAMESPACE, "-l", f"app.kubernetes.io/component={part}", "--tail=20", "--prefix")
              for part in ("agent", "operator", "crds", "cleanup", "check")),
        ]  # fmt: skip
        return "\n".join(self.control_plane.kubectl(*question, check=False) for question in questions)


class ChartCluster(InstalledCluster):
    """Made by `start`."""

    def __init__(
        self, control_plane: ControlPlane, node: RealNode, images: Mapping[str, ProductImage], folder: Path
    ) -> None:
        super().__init__(control_plane, node.verify_alive, images, folder)
        self.node = node

    @classmethod
    @contextmanager
    def start(cls, folder: Path, progress: Callable[[str], None]) -> Iterator[Self]:
        """folder: made for it, its path short. Raises ClusterError when a part cannot be had, or does not come up."""
        images = product_images(progress)
        with control_plane_and_node(folder, progress) as (control_plane, node):
            vendor = folder / "vendor.tar"
            write_program_archive(
                vendor, VENDOR_IMAGE, find(["sample-device-plugin"], progress)["sample-device-plugin"]
            )
            for archive in (vendor, *(image.archive for image in images.values())):
                node.import_images(archive)
            yield cls(control_plane, node, images, folder)

    def described(self, release: Release | None = None) -> TriedNode:
        """What tests run on, while the chart is installed. release: by another Helm than the usual one."""
        return described_real_node(
            self.control_plane, self.node, self.agents_delivery(), (release or self.release).version()
        )

    def values_of_other_images(self, tag: str, **more: Any) -> Json:
        """The same programs under another tag, as those of another release would be."""
        for image in self.images.values():
            self.node.tag_image(image.reference, f"{REGISTRY}/{image.program}:{tag}")
        return _merged({"image": {"registry": REGISTRY, "tag": tag}}, more)

    def remove_all(self) -> None:
        """As if the chart had never been here, whatever a test that failed has left."""
        kubectl = self.control_plane.kubectl
        kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=1")
        kubectl("delete", "daemonsets", "--all", "-n", "kube-system")
        if self.release.is_installed():
            self.release.uninstall("--no-hooks")
        kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings,crds"
        ours = [
            name for name in kubectl("get", kinds, "-o", "name").split() if names.GROUP in name or "nodedevice" in name
        ]
        if ours:
            kubectl("delete", "--wait", *ours)
        self.wait(lambda: not self.pods(SYSTEM_NAMESPACE), "the chart's pods are gone")
        # the agent's checkpoint knows resources of the test before, and so does the Node where no hook took them back
        shutil.rmtree(self.node.outside(_STATE), ignore_errors=True)
        nothing = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        owner = ("--server-side", f"--field-manager={OPERATOR}", "--subresource=status")
        kubectl("apply", *owner, "-f", "-", stdin=json.dumps(nothing))


_PROGRAMS = {"agents": AGENT, "operator": OPERATOR}


def _merged(values: Json, more: Mapping[str, Any]) -> Json:
    """As Helm lays one values file over another."""
    found = dict(values)
    for key, value in more.items():
        under = found.get(key)
        found[key] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return found
