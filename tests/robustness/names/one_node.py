"""A control plane with the operator, and one node whose agent can be started again; what the agent costs the API server."""

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from hack.bench.operator.counts import rss_mib
from tests.cluster.chart import install, installed_manifests
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, agent_program, operator_program
from tests.cluster.observe import Observer, Seen, capacity
from tests.cluster.processes.loopback import reach_loopback_directly
from tests.cluster.processes.processes import reserved_ports

NODE = "node-a"
_READY_SECONDS = 60.0
_USER = "nodedevice-system:nodedevice-agent"


class OneNode:
    """The operator advertises every name: the policy of required plugins, which has room for 64 of a node, is not kept."""

    def __init__(self, control_plane: ControlPlane, agent: Program) -> None:
        self.control_plane, self.agent = control_plane, agent
        self._read = 0

    def node_devices(self) -> list[str]:
        """Names of the resources that have one."""
        return self.control_plane.kubectl("get", "nodedevices", "-o", "jsonpath={.items[*].spec.resourceName}").split()

    def agent_mib(self) -> float:
        assert self.agent.process.pid is not None
        return rss_mib(self.agent.process.pid)

    def watches(self) -> int:
        """Of NodeDevices that are open now, the operator's among them."""
        return int(self._metric(r'apiserver_longrunning_requests\{[^}]*resource="nodedevices"[^}]*verb="WATCH"[^}]*\}'))

    def too_many(self) -> int:
        """Requests that the API server has answered with 429."""
        return int(self._metric(r'apiserver_request_total\{[^}]*code="429"[^}]*\}'))

    def take_requests(self) -> int:
        """How many of the agent's requests have ended since this was asked last."""
        with self.control_plane.audit_log.open("rb") as log:
            log.seek(self._read)
            added = log.read()
        end = added.rfind(b"\n") + 1
        self._read += end
        return sum(_USER.encode() in line for line in added[:end].splitlines())

    def _metric(self, pattern: str) -> float:
        page = self.control_plane.kubectl("get", "--raw", "/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if re.match(pattern, line))


async def until_on_the_node(nodes: Observer, name: str, began: float, timeout_seconds: float) -> float:
    """How long it took from then on until the Node showed the only device of that name."""

    def is_it(seen: Seen) -> bool:
        return capacity(seen, NODE, name) == 1

    return (await asyncio.to_thread(nodes.wait, is_it, began, timeout_seconds)).at - began


@contextlib.contextmanager
def one_node(folder: Path, runtime: str = "none") -> Iterator[OneNode]:
    """folder: its path is short. The agent is not started yet."""
    reach_loopback_directly()
    manifests = installed_manifests({"requiredPlugins": {"enabled": False}})
    with contextlib.ExitStack() as undo:
        control_plane = undo.enter_context(ControlPlane.start(folder / "cluster", lambda line: print(line, flush=True)))
        control_plane.add_nodes([NODE])
        install(control_plane, manifests)
        operators, agents = undo.enter_context(reserved_ports(2))
        operator = operator_program(control_plane, folder, operators, "requiredPlugins: false\n")
        undo.callback(operator.process.kill)
        operator.start()
        home = folder / NODE
        home.mkdir()
        settings = {"runtime": runtime, "advertiseWithoutInjection": runtime == "none"}
        agent = agent_program(control_plane, home, NODE, agents, **settings)
        undo.callback(agent.process.kill)
        yield OneNode(control_plane, agent)
