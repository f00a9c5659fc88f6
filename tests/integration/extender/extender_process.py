"""The extender as a process, and kube-scheduler's part of what is around it: filter and bind by HTTP."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import yaml
from nodedevice_api import assigned_parts, names
from nodedevice_api.nodedevice import DeviceStatus, PartCounts

from hack.bench.operator import counts
from tests.cluster import agent_objects
from tests.cluster.api import NodeDevice, Object, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.loopback import fetch
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status
from tests.integration.operator_process import PlayedNode, delete
from tests.integration.product_process import ProductProcess

MEMORY = "example.com/gpu-mem"
_RULES = {"placement": "SameParent", "choice": "BinPack", "containers": "Any", "advertise": "Sum"}
# an account that may do everything
_ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: extender, namespace: NAMESPACE}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAMESPACE}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: extender, namespace: NAMESPACE}]
"""


class ExtenderProcess(ProductProcess):
    """nodedevice-operator extender as admin, on free ports of loopback."""

    def __init__(self, control_plane: ControlPlane, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._control_plane = control_plane
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_bytes(control_plane.admin_kubeconfig.read_bytes())
        flags = {"--kubeconfig": str(self._kubeconfig), "--http-address": "127.0.0.1:0", "--address": "127.0.0.1:0"}
        flags |= {"--leader-lease-seconds": "4"}
        super().__init__("nodedevice-operator", folder, "extender", flags, options, command="extender")
        # HOST:PORT of its pages, and of the verbs
        self.address = self.verbs = ""

    def reach_by(self, url: str, namespace: str) -> None:
        """Have it reach the API server by that address when it is started next, as an account of that namespace."""
        self._control_plane.apply(_ACCOUNT.replace("NAMESPACE", namespace))
        self._control_plane.service_account_kubeconfig(namespace, "extender", self._kubeconfig)
        content = yaml.safe_load(self._kubeconfig.read_text())
        content["clusters"][0]["cluster"] = {"server": url}
        self._kubeconfig.write_text(yaml.safe_dump(content))

    def launch(self) -> None:
        """Start it and wait until it serves HTTP."""
        self.start()
        wait_until(lambda: self.found_address() != "", "the extender serves HTTP")
        self.address = self.found_address()
        self.verbs = self.lines("serving kube-scheduler")[0]["address"]

    @contextmanager
    def active(self) -> Iterator[Self]:
        """It is active when the block begins, and ends with it."""
        try:
            self.launch()
            self.wait_active()
            yield self
        finally:
            self.close()
        self.verify_no_traceback()

    def wait_active(self) -> None:
        wait_until(lambda: self.is_active, "the extender is active")

    @property
    def is_active(self) -> bool:
        return self.get("/metrics")[0] == 200 and self.metric("nodedevice_extender_active") == 1

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page that it serves."""
        return fetch(f"http://{self.address}{path}")

    def metric(self, line: str) -> float:
        return counts.metric(self.address, line)

    def call(self, verb: str, body: Any) -> tuple[int, Any]:
        """Status and answer to a request of kube-scheduler; the answer is a text where it is no JSON."""
        content = json.dumps(body).encode()
        status, text = fetch(f"http://{self.verbs}/{verb}", body=content)
        return status, json.loads(text) if status == 200 else text

    def filter(self, pod: Any, *nodes: str) -> Any:
        status, answer = self.call("filter", {"Pod": pod.to_dict(), "NodeNames": list(nodes)})
        assert status == 200, answer
        return answer

    def bind(self, pod: Any, node: str) -> tuple[int, Any]:
        meta = pod.metadata
        request = {"PodName": meta.name, "PodNamespace": meta.namespace, "PodUID": meta.uid, "Node": node}
        return self.call("bind", request)

    def close(self) -> None:
        """End it if it still runs, and in order where it can."""
        if self.is_running:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            self.wait_ended()


class GpuNode(PlayedNode):
    """A Node whose agent publishes GPUs with parts."""

    def settle_parts(self, *totals: int) -> None:
        """Publish GPUs with so many parts, all of them available."""
        self.make(MEMORY)
        devices = [
            DeviceStatus(id=f"GPU-{i}", health="Healthy", parts=PartCounts(n, n, 0, n)) for i, n in enumerate(totals)
        ]
        parts = {**_RULES, "largestAvailable": max(totals)}
        numbers: dict[str, Any] = dict.fromkeys(("total", "healthy", "available"), sum(totals))
        status = agent_objects.status(devices, parts=parts, delivery="nri", **numbers)
        apply_status(self.client, self.nd_name(MEMORY), status)

    def remove_parts(self) -> None:
        delete(self.client, NodeDevice, self.nd_name(MEMORY))

    def remove(self, *, is_lease_kept: bool = False) -> None:
        self.remove_parts()
        super().remove(is_lease_kept=is_lease_kept)


def make_pod(control_plane: ControlPlane, namespace: str, name: str, units: int, resource: str = MEMORY) -> Any:
    """A pod that no scheduler binds."""
    resources = Object(limits={resource: str(units)})
    spec = Object(
        containers=[Object(name="main", image="none", resources=resources)],
        schedulerName="nobody",
        terminationGracePeriodSeconds=0,
    )
    return control_plane.client.create(Pod(metadata=Object(name=name, namespace=namespace), spec=spec))


def placed(control_plane: ControlPlane, pod: Any) -> tuple[str | None, Any]:
    """The pod's node, and the parts that it is assigned there."""
    found: Any = control_plane.client.get(Pod, pod.metadata.name, namespace=pod.metadata.namespace)
    text = (found.metadata.annotations or {}).get(names.ASSIGNED_PARTS_ANNOTATION)
    return found.spec.nodeName, text and assigned_parts.decode(text, pod.metadata.uid)
