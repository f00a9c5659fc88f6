"""The token of one node's agent writes all that the API server takes, for as long as it likes; what that costs the others.

MAD_BIG, MAD_SMALL: how many NodeDevices of 1.2 MB and of 64 KiB (default 20 and 200; `make chaos` writes 400 and 5,000, which takes
some minutes).
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodedevice_api import names
from nodedevice_api.names import Condition, node_device_name

from hack.bench.operator.counts import peak_rss_mib, rss_mib
from tests.cluster import agent_objects
from tests.cluster.accounts import client_of_pod
from tests.cluster.api import Client, Node, NodeDevice
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import NODE_A, NODE_B, Stack
from tests.integration.crds.custom_resources import apply_status
from tests.integration.operator.test_memory import many_broken_devices, many_short_ids, many_words
from tests.robustness.chaos.siege import are_served
from tests.robustness.chaos.witness import Witness

BIG, SMALL = int(os.environ.get("MAD_BIG", "20")), int(os.environ.get("MAD_SMALL", "200"))
RESOURCE = "chaos.example.com/gpu"
DEVICES, PODS = 4, 2
MOST_MIB = 256
_SECONDS = 60.0
_WRITERS = 2


class MadToken:
    """Writes NodeDevices of a node as its agent may, side by side. Ends when all are written."""

    def __init__(self, client: Client, node: str, uid: str) -> None:
        self._client = client
        self._node = node
        self._uid = uid
        self._numbers = iter(range(BIG + SMALL))
        self._lock = threading.Lock()
        self.failures: list[str] = []

    def resource(self, number: int) -> str:
        return f"mad.example.com/r{number:04}"

    def write_all(self) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(_WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (number := self._next()) is not None:
            try:
                self._write(number)
            except Exception as exc:  # a thread's own would only be printed
                self.failures.append(f"{number}: {exc}")

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def _write(self, number: int) -> None:
        body = agent_objects.node_device(self._node, self.resource(number), self._uid)
        self._client.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)
        shapes = (many_short_ids, many_broken_devices)
        status: dict[str, Any] = shapes[number % 2]() if number < BIG else many_words(number)
        apply_status(self._client, node_device_name(self._node, self.resource(number)), status)


@pytest.fixture
def stack() -> Iterator[Stack]:
    plugins = {node: {"simulated": [{"resourceName": RESOURCE, "count": DEVICES}]} for node in (NODE_A, NODE_B)}
    with tempfile.TemporaryDirectory(prefix="nd-mad-") as folder, Stack.start(Path(folder), plugins=plugins) as found:
        yield found


def test_a_token_gone_mad_costs_the_others_nothing(stack: Stack) -> None:
    cluster = stack.control_plane
    assert isinstance(cluster, ControlPlane)
    is_served = partial(are_served, cluster, RESOURCE, DEVICES, Condition.READY)
    cluster.add_namespace("chaos")
    for number in range(PODS):
        pod = a_pod(f"{NODE_A}-{number}", "chaos", {RESOURCE: 1}, NODE_A)
        cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod))
    held = node_device_name(NODE_A, RESOURCE)
    stack.wait_for("pods hold their devices", lambda: _allocated(stack, held) == PODS)
    node: Any = cluster.client.get(Node, NODE_B)
    with (
        Witness(cluster.admin_kubeconfig, RESOURCE, {NODE_A: PODS, NODE_B: 0}) as witness,
        client_of_pod(cluster, SYSTEM_NAMESPACE, "nodedevice-agent", NODE_B) as token,
    ):
        began, mad = time.monotonic(), MadToken(token, NODE_B, str(node.metadata.uid))
        mad.write_all()
        written = time.monotonic() - began
        assert not mad.failures[:3], (len(mad.failures), mad.failures[:3])
        stack.wait_for("both nodes are served", is_served, _SECONDS)
        while_running = _memory(stack)
        began = time.monotonic()
        stack.operator.process.kill()
        stack.operator.process.start()
        stack.operator.process.wait_ready(stack.operator.is_ready, _SECONDS)
        started = time.monotonic() - began
        stack.wait_for("both nodes are served again", is_served, _SECONDS)
        at_its_start = _memory(stack)
        print(f"\n{BIG} + {SMALL} NodeDevices in {written:.0f} s; the operator started in {started:.1f} s")
        print(f"operator's memory at most: {while_running:.0f} MiB by its watch, {at_its_start:.0f} MiB at its start")
        print(f"API server: {rss_mib(cluster.pids()['kube-apiserver']):.0f} MiB; {witness.seen} Nodes seen")
        assert not witness.violations
        assert max(while_running, at_its_start) < MOST_MIB


def _allocated(stack: Stack, name: str) -> int:
    found: Any = stack.control_plane.client.get(NodeDevice, name)
    return int((found.status or {}).get("allocated", 0))


def _memory(stack: Stack) -> float:
    pid = stack.operator.process.pid
    assert pid is not None
    return peak_rss_mib(pid)
