"""The extender in the scene, and kube-scheduler's part: a pod that is bound, binds too late or refused, and slow requests."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from nodedevice_api import names

from tests.cluster import agent_objects
from tests.cluster.api import Lease, Object, PodBinding
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import is_refused
from tests.integration.extender.extender_process import ExtenderProcess, GpuNode, make_pod
from tests.integration.operator_process import delete
from tests.integration.policies import allow, refuse, rule

_UNITS = 8
# more than their alerts want
_CONFLICTS = 15
_REFUSED = 4
_SLOW_SECONDS = 1.2
_REFUSAL = "this pod is not bound"


class PlayedScheduler:
    """What a kube-scheduler asks the extender for a node with one GPU of 8 parts."""

    def __init__(self, control_plane: ControlPlane, namespace: str, process: ExtenderProcess, node: str) -> None:
        self.process = process
        self._control_plane = control_plane
        self._namespace = namespace
        self._node = node
        self._large: Any = make_pod(control_plane, namespace, "large", _UNITS + 1)
        self._refused: Any = make_pod(control_plane, namespace, "refused", 1)

    def place(self) -> None:
        """A pod gets its parts, and its agent never shows it."""
        pod: Any = make_pod(self._control_plane, self._namespace, "placed", _UNITS // 2)
        wait_until(lambda: bool(self.process.filter(pod, self._node)["NodeNames"]), "the node is known")
        self.process.call("prioritize", {"Pod": pod.to_dict(), "NodeNames": [self._node]})
        assert self.process.bind(pod, self._node) == (200, {"Error": ""})
        # a first one of each, from which others are counted
        self.process.bind(self._large, self._node)
        rules = [rule("pods/binding", "CREATE", "refused")]
        unless = f"object.target.name != '{self._node}'"
        refuse(self._control_plane, f"{self._node}-binds", rules, unless, _REFUSAL)
        wait_until(self._is_refused, "a bind is refused")
        self.process.bind(self._refused, self._node)

    def ask(self) -> None:
        """What is to be counted: binds of a pod without room, and filters that are sent slowly."""
        for _ in range(_CONFLICTS):
            self.process.bind(self._large, self._node)
        for _ in range(_REFUSED):
            self.process.bind(self._refused, self._node)
        body = json.dumps({"Pod": self._large.to_dict(), "NodeNames": [self._node]}).encode()
        host, _, port = self.process.verbs.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.putrequest("POST", "/filter")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        time.sleep(_SLOW_SECONDS)
        connection.send(body)
        assert connection.getresponse().status == 200
        connection.close()

    def allow_binds(self) -> None:
        allow(self._control_plane, f"{self._node}-binds")

    def _is_refused(self) -> bool:
        """Whether a bind of that pod is refused; nothing is bound."""
        name, namespace = self._refused.metadata.name, self._refused.metadata.namespace
        target = Object(apiVersion="v1", kind="Node", name=self._node)
        binding = PodBinding(metadata=Object(name=name, namespace=namespace), target=target)
        # what is accepted is answered by a Status, which is none
        with suppress(msgspec.ValidationError):
            create = partial(self._control_plane.client.create, binding, name, namespace=namespace, dry_run=True)
            return is_refused(create, _REFUSAL)
        return False

    def lose_lease(self) -> None:
        """Somebody else holds it from now on."""
        now = agent_objects.now_text()
        spec = {"holderIdentity": "somebody-else", "leaseDurationSeconds": 3600, "renewTime": now}
        self._control_plane.client.patch(Lease, names.EXTENDER_LEASE, {"spec": spec}, namespace=SYSTEM_NAMESPACE)


@contextmanager
def scheduled(control_plane: ControlPlane, namespace: str, folder: Path) -> Iterator[PlayedScheduler]:
    """An active extender that has been asked once."""
    process = ExtenderProcess(control_plane, folder)
    try:
        with GpuNode(control_plane) as node:
            node.settle_parts(_UNITS)
            process.launch()
            process.wait_active()
            scheduler = PlayedScheduler(control_plane, namespace, process, node.name)
            try:
                scheduler.place()
                yield scheduler
            finally:
                scheduler.allow_binds()
    finally:
        process.close()
        delete(control_plane.client, Lease, names.EXTENDER_LEASE, SYSTEM_NAMESPACE)
