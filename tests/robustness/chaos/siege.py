"""The product under siege: its parts are killed, paused, cut off and contradicted, and what a Node must show is known.

The model is small: a device is healthy or broken as it was set here, a pod holds what its NodeDevice says, and a Node shows every
device that is healthy or held.
"""

import os
import signal
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml
from nodedevice_agent.plugins.simulated import control
from nodedevice_api.names import Condition, node_device_name

from tests.cluster.api import NO_ANSWER, ApiError, Node, NodeDevice
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ComponentError
from tests.cluster.local.stack import NODE_A, NODE_B, Program, Stack
from tests.cluster.processes.loopback import fetch
from tests.cluster.processes.processes import tail
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.robustness.chaos import schedule
from tests.robustness.chaos.schedule import Round, Step
from tests.robustness.chaos.witness import Witness

RESOURCE = "chaos.example.com/gpu"
DEVICES = 8
PODS = 3
# of both nodes
PLUGINS = {node: {"simulated": [{"resourceName": RESOURCE, "count": DEVICES}]} for node in (NODE_A, NODE_B)}
RIGHT_SECONDS = 2.0
# What an API server that starts asks of clients that come before it serves their paths (Retry-After): so long they may be deaf.
_API_ASKS_SECONDS = 5.0
# Processes restart and etcd catches up, on a machine that may be slow; it takes some seconds on others.
_CALM_SECONDS = 120.0
# A device that changes more often is flapping, and held back on purpose.
_HEALTH_SECONDS = 15.0
_LEADS = "nodedevice_operator_leader 1.0"
# So long a proxy is in trouble, at least: what is asked for again and again is counted in a window of that length.
_PROXY_SECONDS = 10.0
# What a request may end with while the API server is away.
_AWAY = (ApiError, *NO_ANSWER)


class Siege:
    """Everything, running through proxies, with pods that hold devices; use start() as a context manager."""

    def __init__(self, stack: Stack, proxies: dict[str, FaultProxy], witness: Witness) -> None:
        self.nodes = (NODE_A, NODE_B)
        self.counts: Counter[str] = Counter()
        self.witness = witness
        self._stack = stack
        self._proxies = proxies
        self._broken: dict[str, set[str]] = {node: set() for node in self.nodes}
        self._changed_at: dict[tuple[str, str], float] = {}
        self._writers = 0
        # what is killed and not started again yet
        self._dead: list[Program] = []
        self._is_etcd_paused = False
        self._is_served_at = 0.0
        self._to_calm: list[float] = []
        self._to_right: list[float] = []
        self._undo = ExitStack()

    @classmethod
    def start(cls, folder: Path) -> Self:
        """Bring all of it up."""
        with ExitStack() as undo:
            stack = undo.enter_context(Stack.start(folder, plugins=PLUGINS))
            proxies = through_proxies(stack, undo)
            make_pods(stack.control_plane, NODE_A, NODE_B)
            witness = Witness(stack.control_plane.admin_kubeconfig, RESOURCE, {NODE_A: PODS, NODE_B: PODS})
            siege = cls(stack, proxies, witness)
            siege._wait("every pod holds its device", siege._are_pods_served, _CALM_SECONDS)
            siege.calm_down("the start")
            undo.enter_context(witness)
            siege._undo = undo.pop_all()
            return siege

    def play(self, chosen: Round) -> None:
        """One round: what lasts begins, the rest happens, what lasts ends."""
        with ExitStack() as ends:
            for step in chosen.lasting:
                self.counts[step.what] += 1
                ends.callback(self._begin(step))
                time.sleep(chosen.pause_seconds)
            for step in chosen.momentary:
                if self._do(step):
                    self.counts[step.what] += 1
                time.sleep(chosen.pause_seconds)

    def calm_down(self, after: str) -> None:
        """Wait until every part works again and says what is so; then each Node must be right within RIGHT_SECONDS."""
        began = time.monotonic()
        self._wait(f"calm after {after}", self._is_calm, _CALM_SECONDS)
        calm = time.monotonic()
        self._wait(f"capacity right after {after}", self._is_right, RIGHT_SECONDS)
        self._to_calm.append(calm - began)
        self._to_right.append(time.monotonic() - calm)
        self.counts["calms"] += 1

    def most_requests_per_second(self) -> float:
        """Of lists and watches of one agent, over any window of as long as a proxy is in trouble."""
        most = 0
        for node in self.nodes:
            at = [moment for moment, method, _ in self._proxies[node].requests if method in ("GET", "WATCH")]
            most = max([most, *(bisect_left(at, moment + _PROXY_SECONDS) - i for i, moment in enumerate(at))])
        return most / _PROXY_SECONDS

    def report(self) -> str:
        lines = [f"{number:5d} {what}" for what, number in sorted(self.counts.items())]
        bad = self.witness.violations
        lines.append(f"{self.witness.seen:5d} Nodes seen by the witness, {len(bad)} below what is in use")
        lines += [f"      {violation}" for violation in bad[:20]]
        lines.append(f"GETs and watches of an agent: at most {self.most_requests_per_second():.1f} a second")
        lines.append(f"until calm: at most {max(self._to_calm):.1f} s")
        lines.append(f"from calm until right: at most {max(self._to_right):.2f} s")
        return "\n".join(lines)

    def _begin(self, step: Step) -> Callable[[], None]:
        """Begin what lasts; how to end it."""
        control_plane = self._stack.control_plane
        if step.what in (schedule.OPERATOR, schedule.AGENT):
            program = self._stack.operator if step.what == schedule.OPERATOR else self._stack.agents[step.node]
            program.process.kill()
            self._dead.append(program)
            return partial(self._start, program)
        if step.what in schedule.PROXIES:
            return self._trouble_proxies(step.what)
        assert isinstance(control_plane, ControlPlane)
        if step.what == schedule.API_SERVER:
            control_plane.stop_apiserver()
            return partial(self._start_api_server, control_plane)
        etcd = control_plane.pids()["etcd"]
        os.kill(etcd, signal.SIGSTOP)
        self._is_etcd_paused = True
        return partial(self._resume, etcd)

    def _trouble_proxies(self, what: str) -> Callable[[], None]:
        """That goes wrong between the API server and all programs. Watches that are open would go on: those are cut."""
        for proxy in self._proxies.values():
            if what == schedule.FROZEN:
                proxy.is_held.set()
            elif what == schedule.OLD:
                proxy.is_old.set()
            else:
                answer = (200, b"") if what == schedule.ENDED else (410, refusal(410, "Expired", "too old"))
                proxy.rule("WATCH", "", sys.maxsize, *answer, {"Content-Type": "application/json"})
                proxy.cut()
        return partial(self._end_trouble, time.monotonic() + _PROXY_SECONDS)

    def _end_trouble(self, at: float) -> None:
        time.sleep(max(at - time.monotonic(), 0.0))
        for proxy in self._proxies.values():
            proxy.rules.clear()
            proxy.is_held.clear()
            proxy.is_old.clear()

    def _resume(self, etcd: int) -> None:
        os.kill(etcd, signal.SIGCONT)
        self._is_etcd_paused = False

    def _start_api_server(self, control_plane: ControlPlane) -> None:
        control_plane.start_apiserver()
        self._is_served_at = time.monotonic() + _API_ASKS_SECONDS

    def _start(self, program: Program) -> None:
        program.process.start()
        self._dead.remove(program)

    def _do(self, step: Step) -> bool:
        """Do what takes a moment; whether it could be done."""
        if step.what == schedule.HEALTH:
            return self._change_health(step)
        if step.what == schedule.CUT:
            return self._proxies[("operator", step.node)[step.chance < 0.3]].cut() > 0
        if step.what == schedule.DELETED:
            return self._delete(step.node)
        # a new writer each time: the same one again and again is a contest, and rightly given way to
        self._writers += 1
        number = "0" if step.what == schedule.ZEROED else str(int(step.chance * 100))
        try:
            status: Any = {"status": {"capacity": {RESOURCE: number}, "allocatable": {RESOURCE: number}}}
            self._stack.control_plane.client.patch(
                Node.Status, step.node, status, field_manager=f"writer-{self._writers}"
            )
        except _AWAY:
            return False
        return True

    def _delete(self, node: str) -> bool:
        """Delete its NodeDevice, where its agent and the operator live.

        Without an agent that makes it again the number is given up, and rightly. And the object is the memory of an operator that
        starts: with both gone, nothing says that a number which somebody overwrites at that moment was ours.
        While etcd is paused it would only be waited for.
        """
        if self._is_etcd_paused or self._stack.operator in self._dead or self._stack.agents[node] in self._dead:
            return False
        try:
            self._stack.control_plane.client.delete(NodeDevice, node_device_name(node, RESOURCE))
        except _AWAY:
            return False
        return True

    def _change_health(self, step: Step) -> bool:
        now = time.monotonic()
        long_ago = now - _HEALTH_SECONDS
        devices = [f"gpu-{number}" for number in range(DEVICES)]
        quiet = [device for device in devices if self._changed_at.get((step.node, device), long_ago) <= long_ago]
        if not quiet:
            return False
        device = quiet[int(step.chance * len(quiet))]
        self._broken[step.node] ^= {device}
        self._changed_at[step.node, device] = now
        is_healthy = device not in self._broken[step.node]
        control.set_health(self._stack.agents[step.node].folder, RESOURCE, device, is_healthy)
        return True

    def _is_calm(self) -> bool:
        return not self._unrest()

    def _unrest(self) -> list[str]:
        """What does not run, is not ready, or has not published its state yet; nothing when it is calm."""
        programs = {"operator": self._stack.operator, **self._stack.agents}
        found = [f"{name}: {text}" for name, program in programs.items() if (text := _missing(program))]
        if not found and not _leads(self._stack.operator):
            found.append("no operator leads")
        if time.monotonic() < self._is_served_at:
            found.append("who asked the API server too early may still wait, as it bade them")
        try:
            found += [f"{node} has not published" for node in self.nodes if not self._is_published(node)]
        except _AWAY as exc:
            found.append(f"the API server does not answer: {exc}")
        return found

    def _is_published(self, node: str) -> bool:
        """Which devices are broken, not how many: as many others may have been before."""
        status = self._status(node)
        published = {device["id"] for device in status.get("devices", ()) if device["health"] == "Unhealthy"}
        return published == self._broken[node] and status.get("allocated") == PODS

    def _is_right(self) -> bool:
        for name in self.nodes:
            wanted = str(self._wanted(name))
            shown: Any = self._stack.control_plane.client.get(Node, name).status
            if (shown.capacity.get(RESOURCE), shown.allocatable.get(RESOURCE)) != (wanted, wanted):
                return False
            # published as well: it is what an operator that starts next knows of it
            published = {each["type"]: each["status"] for each in self._status(name)["conditions"]}
            if published.get(Condition.ADVERTISED) != "True":
                return False
        return True

    def _wanted(self, node: str) -> int:
        held = {device for entry in self._status(node)["allocations"] for device in entry["deviceIDs"]}
        healthy = {f"gpu-{number}" for number in range(DEVICES)} - self._broken[node]
        return len(held | healthy)

    def _are_pods_served(self) -> bool:
        return all(self._status(node).get("allocated") == PODS for node in self.nodes)

    def _status(self, node: str) -> dict[str, Any]:
        return status_of(self._stack.control_plane, node)

    def _wait(self, what: str, is_so: Callable[[], bool], seconds: float) -> None:
        try:
            self._stack.wait_for(what, is_so, seconds)
        except (TimeoutError, ComponentError) as exc:
            lines = [str(exc), f"unrest: {self._unrest()}", *(self._shown(node) for node in self.nodes), self._so_far()]
            lines += ["the end of the operator's log:", tail(self._stack.operator.process.log)]
            raise AssertionError("\n".join(lines)) from exc

    def _shown(self, node: str) -> str:
        try:
            found: Any = self._stack.control_plane.client.get(Node, node)
            status = self._status(node)
        except _AWAY as exc:
            return f"{node}: {exc}"
        numbers = {name: value for name, value in status.items() if isinstance(value, int)}
        held = [entry["deviceIDs"] for entry in status.get("allocations", [])]
        shown = found.status.capacity.get(RESOURCE)
        return f"{node}: shows {shown}, says {numbers}, held {held}, broken {sorted(self._broken[node])}"

    def _so_far(self) -> str:
        return self.report() if self._to_right else "nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def through_proxies(stack: Stack, opened: ExitStack) -> dict[str, FaultProxy]:
    """Restart each program so that it reaches the API server through a proxy of its own. Returns these by program."""
    cluster, programs = stack.control_plane, {"operator": stack.operator, **stack.agents}
    assert isinstance(cluster, ControlPlane)
    certificate = cluster.authority.server("fault-proxy")
    proxies = {name: opened.enter_context(FaultProxy(cluster.admin_kubeconfig, certificate)) for name in programs}
    for name, program in programs.items():
        proxies[name].lead(program.folder / "kubeconfig")
        program.process.kill()
        program.process.start()
    return proxies


def make_pods(cluster: Cluster, *nodes: str) -> None:
    """On each node PODS, which ask for a device each."""
    cluster.add_namespace("chaos")
    pods = (a_pod(f"{node}-{number}", "chaos", {RESOURCE: 1}, node) for node in nodes for number in range(PODS))
    for pod in pods:
        cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod))


def status_of(cluster: Cluster, node: str) -> dict[str, Any]:
    """Of the NodeDevice; empty where it has none."""
    found: Any = cluster.client.get(NodeDevice, node_device_name(node, RESOURCE))
    return dict(found.status or {})


def are_served(cluster: Cluster) -> bool:
    """Whether each of both nodes has all devices, and says so."""
    for name in (NODE_A, NODE_B):
        node: Any = cluster.client.get(Node, name)
        conditions = {each["type"]: each["status"] for each in status_of(cluster, name).get("conditions", [])}
        if node.status.capacity.get(RESOURCE) != str(DEVICES) or conditions.get(Condition.ADVERTISED) != "True":
            return False
    return True


def _missing(program: Program) -> str:
    """What a program that is not ready lacks, in its own words; nothing when it is ready."""
    try:
        status, body = fetch(f"http://{program.address}/readyz", timeout_seconds=1)
    except OSError as exc:
        return str(exc)
    return "" if status == 200 else body


def _leads(operator: Program) -> bool:
    try:
        return _LEADS in fetch(f"http://{operator.address}/metrics", timeout_seconds=1)[1]
    except OSError:
        return False
