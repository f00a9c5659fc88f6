"""A burst of pods on a busy machine, and with a busy API server: no attempt fails for that. Counts failures, never seconds."""

import ssl
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from hack.bench.extender import fleet
from hack.bench.operator import counts
from hack.bench.operator.api import Api
from hack.scheduling.cluster import EXTENDED, gpu_cluster
from hack.scheduling.node_model import RESOURCE, NodeModel
from tests.cluster.api import Event, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, extender_program
from tests.cluster.processes.processes import Process, reserved_ports
from tests.cluster.second_scheduler import Extender, second_scheduler
from tests.cluster.waiting import wait_until

_NODES: Final = 20
_PODS: Final = 1000
_FEWER_PODS: Final = 300
_UNITS: Final = 8
_LOAD: Final = 8
# far above anything seen: a slow response is no failure here
_PATIENCE_SECONDS: Final = 600.0
# of a request that was not served because a server or its port is busy
_NOT_SERVED: Final = ("429", "Too Many Requests", "connection refused", "connection reset", "EOF")
# An API server that serves twelve binds of the extender at once, and refuses the others.
_FEW_SEATS: Final = """
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata:
  name: few-binds
spec:
  type: Limited
  limited:
    nominalConcurrencyShares: 5
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse:
      type: Reject
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: few-binds
spec:
  matchingPrecedence: 2
  priorityLevelConfiguration:
    name: few-binds
  rules:
  - subjects:
    - kind: Group
      group:
        name: system:serviceaccounts
    resourceRules:
    - apiGroups: [""]
      resources: [pods/binding]
      verbs: [create]
      namespaces: ["*"]
"""


class Site:
    """Nodes with room for all pods, and an extender. The scheduler starts when all pods wait."""

    def __init__(self, control_plane: ControlPlane, extender: Program, scheduler: Process, metrics: str) -> None:
        self.control_plane = control_plane
        self.scheduler = scheduler
        self._extender = extender
        self._metrics = metrics

    def bound(self) -> int:
        pods = self.control_plane.client.list(Pod, namespace=fleet.NAMESPACE, fields={"spec.nodeName!": ""})
        return sum(1 for _ in pods)

    def failures(self) -> Counter[str]:
        """Failed attempts by message, from Events."""
        events: Any = self.control_plane.client.list(
            Event, namespace=fleet.NAMESPACE, fields={"reason": "FailedScheduling"}
        )
        found: Counter[str] = Counter()
        for event in events:
            found[event.message] += event.series.count if event.series else 1
        return found

    def attempts(self) -> dict[str, float]:
        """Number of the scheduler's attempts by result."""
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(f"https://{self._metrics}/metrics", context=context) as page:
            lines = page.read().decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith("scheduler_schedule_attempts_total{"):
                labels, _, value = line.rpartition(" ")
                found[labels.partition('result="')[2].partition('"')[0]] = float(value)
        return found

    def refused_binds(self) -> float:
        """Number of requests that the API server refused for their number."""
        page = self.control_plane.kubectl("get", "--raw", "/metrics")
        name = "apiserver_flowcontrol_rejected_requests_total{"
        lines = [line for line in page.splitlines() if line.startswith(name) and 'flow_schema="few-binds"' in line]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    def rejected_connections(self) -> float:
        return sum(
            counts.metric(
                self._extender.address, f'nodedevice_extender_rejected_connections_total{{reason="{reason}"}}'
            )
            for reason in ("busy", "crowded", "handshake", "late", "name")
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as undo:
        control_plane, _ = undo.enter_context(gpu_cluster(tmp_path, _NODES, print))
        control_plane.stop_controllers()
        port, verbs, metrics = undo.enter_context(reserved_ports(3))
        # with its account from the chart: the API server's limits do not apply to an admin
        extender = extender_program(control_plane, tmp_path, port, verbs)
        undo.callback(extender.process.kill)
        extender.start()
        asked = Extender(f"http://127.0.0.1:{verbs}", [RESOURCE], _PATIENCE_SECONDS)
        kubeconfig = control_plane.folder / "kube-scheduler.kubeconfig"
        scheduler = second_scheduler(kubeconfig, tmp_path, EXTENDED, asked, metrics)
        undo.callback(scheduler.kill)
        yield Site(control_plane, extender, scheduler, f"127.0.0.1:{metrics}")


@contextmanager
def _load(processes: int) -> Iterator[None]:
    """Processes that always want to run."""
    with ExitStack() as undo:
        for _ in range(processes):
            busy = undo.enter_context(subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"]))
            undo.callback(busy.kill)
        yield


async def _burst(site: Site, pods: int, load: int) -> None:
    """Have the scheduler bind so many pods that all wait when it starts."""
    async with Api(site.control_plane.admin_kubeconfig) as api:
        for number in range(_NODES):
            await fleet.publish(api, NodeModel(f"gpu-{number}"))
        for number in range(pods):
            await fleet.create_pod(api, fleet.pod(f"burst-{number}", _UNITS, scheduler=EXTENDED))
    with _load(load):
        site.scheduler.start()
        wait_until(lambda: site.bound() == pods, "all pods are bound", _PATIENCE_SECONDS)


def _verify_all_served(site: Site) -> None:
    messages, attempts = site.failures(), site.attempts()
    print(f"attempts {attempts}, failed: {messages.most_common(5)}")
    # a repeated Event counts late, but no failure is without one
    assert messages or not attempts.get("error")
    assert [message for message in messages if any(words in message for words in _NOT_SERVED)] == []
    assert site.rejected_connections() == 0


async def test_no_attempt_fails_because_the_machine_is_busy(site: Site) -> None:
    await _burst(site, _PODS, _LOAD)
    _verify_all_served(site)


async def test_no_attempt_fails_because_the_api_server_is_busy(site: Site) -> None:
    site.control_plane.apply(_FEW_SEATS)
    await _burst(site, _FEWER_PODS, 0)
    assert site.refused_binds() > 0
    _verify_all_served(site)
