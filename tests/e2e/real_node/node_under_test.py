"""A real node with plugins and, but for the bare kubelet, the agent; and what the API shows of its devices.

    under_test.run(pod("a", [container("main", {rw.resource: 1})]))     until all of its containers run
    under_test.wait_numbers(rw.resource, allocated=1)

What pods come to is in pods_on_node.
"""

import asyncio
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodedevice_api import extended_resources, names

from docs.tried_nodes import TriedNode
from tests.cluster.api import Node
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import program_path
from tests.cluster.node.kubelet import PLUGIN_DIR as KUBELET_PLUGIN_DIR
from tests.cluster.node.machine import MachineProcess
from tests.cluster.node.real_node import RealNode
from tests.cluster.observe import Observer
from tests.cluster.processes.loopback import answers
from tests.cluster.processes.processes import reserved_ports
from tests.e2e.real_node.device_plugins import Answer, Kind, Plugins, kinds
from tests.e2e.real_node.pods import Json
from tests.e2e.real_node.pods_on_node import OURS, PATIENCE_SECONDS, PodsOnNode
from tests.e2e.recording import described_real_node

BARE, NRI, KUBELET = "bare", "nri", "kubelet"
AGENT_PLUGIN_DIR = "/var/lib/nodedevice/device-plugins"
_MOUNTED = f"{OURS}/mounted"
_CDI_FILE = "/run/cdi/e2e.json"


class NodeUnderTest(PodsOnNode):
    """delivery: one of bare (no agent), nri, kubelet. loop: plugins run in it.

    of: what plugins there are; each of the usual ones unless it is given.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        node: RealNode,
        delivery: str,
        loop: asyncio.AbstractEventLoop,
        of: Sequence[Kind] | None = None,
    ) -> None:
        super().__init__(control_plane, node)
        self.delivery = delivery
        self.kinds: Mapping[str, Kind] = {kind.name: kind for kind in (of or kinds())}
        self.plugins = Plugins(
            loop, node.outside(self.plugin_dir), list(self.kinds.values()), node.outside(_MOUNTED), Path(_MOUNTED)
        )
        self._agent: MachineProcess | None = None
        self._agent_address = ""

    def described(self) -> TriedNode:
        """What tests run on."""
        return described_real_node(self.control_plane, self.node, self.delivery, helm="")

    @property
    def plugin_dir(self) -> str:
        """Where plugins register, as the node sees it."""
        return KUBELET_PLUGIN_DIR if self.delivery == BARE else AGENT_PLUGIN_DIR

    @property
    def agent(self) -> MachineProcess:
        assert self._agent is not None, "the bare kubelet has no agent"
        return self._agent

    @contextmanager
    def running(self) -> Iterator[None]:
        """Agent and plugins, for the length of the block."""
        with reserved_ports(1) as (port,):
            self.write_cdi()
            if self.delivery != BARE:
                self._agent_address = f"127.0.0.1:{port}"
                self._agent = self._agent_process({}, {})
                self.start_agent()
            try:
                with self.plugins:
                    self.wait_advertised()
                    yield
            finally:
                if self._agent is not None:
                    self._agent.kill()

    @contextmanager
    def containerd_with(self, usual: str, instead: str) -> Iterator[None]:
        """containerd, restarted, with that part of its configuration replaced; afterwards as before."""
        file = self.node.folder / "containerd.toml"
        whole = file.read_text()
        assert whole.count(usual) == 1
        self._configure_containerd(file, whole.replace(usual, instead))
        try:
            yield
        finally:
            self._configure_containerd(file, whole)

    def _configure_containerd(self, file: Path, content: str) -> None:
        file.write_text(content)
        self.node.containerd.kill()
        self.node.start_containerd()

    def start_agent(self) -> None:
        """Start it, and wait until it says that it is ready. The bare kubelet has none: nothing happens."""
        if self._agent is not None:
            self._agent.start()
            self.wait_agent()

    def wait_agent(self) -> None:
        """Wait until it says that it is ready."""
        self.agent.wait_ready(self._agent_answers, PATIENCE_SECONDS)

    @contextmanager
    def agent_with(self, flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Iterator[None]:
        """For the length of the block an agent with further flags and variables is in the place of the usual one."""
        with self.agent_replaced(self._agent_process(flags, environment or {}), self._agent_address):
            yield

    @contextmanager
    def agent_replaced(self, agent: MachineProcess, address: str) -> Iterator[None]:
        """For the length of the block that agent, which answers at that address, is in the place of the usual one."""
        usual, usual_address = self.agent, self._agent_address
        self._exchange_agent(agent, address)
        try:
            yield
        finally:
            self._exchange_agent(usual, usual_address)

    def _exchange_agent(self, agent: MachineProcess, address: str) -> None:
        with self.registering_again():
            self.agent.kill()
            self._agent, self._agent_address = agent, address
            self.start_agent()

    def bring_back(self) -> None:
        """What a test that failed left dead or stopped is there again. All is well: nothing happens."""
        node = self.node
        for process, start in (
            (node.containerd, node.start_containerd),
            (node.kubelet, node.start_kubelet),
            (self._agent, self.start_agent),
        ):
            if process is None:
                continue
            if process.pid is None:
                process.kill()  # dead already: its starter is waited for
                start()
            else:
                process.signal(signal.SIGCONT)

    def reboot(self) -> None:
        """Everything of the node, agent and plugins too, gone at once and started again."""
        with self.rebooted_without_plugins():
            pass

    @contextmanager
    def rebooted_without_plugins(self) -> Iterator[None]:
        """Everything gone at once; for the length of the block all is up again but the plugins, then they come, too."""
        with self.registering_again():
            self.node.power_off()
            self.agent.kill()
            self.plugins.stop()
            self.node.power_on()
            self.write_cdi()
            self.start_agent()
            try:
                yield
            finally:
                self.plugins.start()
        self.wait_advertised()

    @contextmanager
    def registering_again(self) -> Iterator[None]:
        """Around a restart of the kubelet or of the agent: where the kubelet allocates, every resource is listed again.

        A pod that the scheduler sends it sooner, by the allocatable of before, it rejects for good.
        """
        log = self.node.kubelet.log
        before = log.stat().st_size
        yield

        def are_listed() -> bool:
            found = log.read_bytes()[before:].decode()
            processed = '"Processed device updates for resource" resourceName='
            return all(f'{processed}"{kind.resource}"' in found for kind in self.kinds.values())

        if self.delivery != NRI:
            self.until(are_listed, "the kubelet has every resource again")

    def write_cdi(self) -> None:
        """Put the plugins' CDI specification where the runtime looks; a reboot removes it."""
        specification = self.node.outside(_CDI_FILE)
        specification.parent.mkdir(exist_ok=True)
        for kind in self.kinds.values():
            if kind.cdi:
                specification.write_text(kind.cdi_specification())

    # -- pods -----------------------------------------------------------------------------------------------------------

    def create(self, body: Json) -> Any:
        made = super().create(body)
        if self.delivery == NRI and self._asks_for_ours(body):
            # from the moment in which a resource is advertised, nobody slips past the policy
            assert names.REQUIRED_PLUGINS_ANNOTATION in (made.metadata.annotations or {}), "the pod is not marked"
        return made

    def _asks_for_ours(self, body: Json) -> bool:
        containers = [*body["spec"]["containers"], *body["spec"]["initContainers"]]
        asked = {resource for each in containers for resource in each["resources"]["limits"]}
        return not asked.isdisjoint(kind.resource for kind in self.kinds.values())

    # -- numbers ----------------------------------------------------------------------------------------------------------

    def wait_advertised(self) -> None:
        """Wait until the Node shows every device of every plugin as allocatable."""
        for kind in self.kinds.values():
            self.wait_allocatable(kind.resource, len(kind.files))

    def wait_allocatable(self, resource: str, count: int) -> None:
        self.until(lambda: self.allocatable(resource) == count, f"{resource} is {count}")

    def allocatable(self, resource: str) -> int | None:
        """None where the Node does not show the resource."""
        node = self.control_plane.client.get(Node, self.node.name)
        value = ((node.status.allocatable or {}) if node.status else {}).get(resource)
        return None if value is None else extended_resources.count(value)

    def node_device(self, resource: str) -> Json:
        """Status of the NodeDevice; empty where there is none."""
        name = names.node_device_name(self.node.name, resource)
        text = self.control_plane.kubectl("get", "nodedevice", name, "-o", "json", check=False)
        return dict(json.loads(text).get("status") or {}) if text else {}

    def wait_numbers(self, resource: str, **numbers: int) -> None:
        """Wait until the NodeDevice shows these numbers."""
        self.until(lambda: numbers.items() <= self.node_device(resource).items(), f"{resource}: {numbers}")

    def wait_free(self, kind: Kind) -> None:
        """Wait until the NodeDevice shows that no device is held."""
        self.wait_numbers(kind.resource, allocated=0, releasing=0, available=len(kind.files))

    def holders(self, resource: str) -> dict[str, list[str]]:
        """Device IDs by `pod/container`, as the NodeDevice shows them."""
        allocations = self.node_device(resource).get("allocations", [])
        return {f"{each['name']}/{each['container']}": each["deviceIDs"] for each in allocations}

    def condition(self, resource: str, kind: str) -> Json:
        """Of the NodeDevice; empty where it has none of that kind."""
        conditions: list[Json] = self.node_device(resource).get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    @contextmanager
    def answering(self, kind: Kind, answer: Answer) -> Iterator[None]:
        """For the length of the block its plugin responds to Allocate with that."""
        knobs = self.plugins.by_resource[kind.resource].knobs
        usual, knobs.allocate_answer = knobs.allocate_answer, answer
        try:
            yield
        finally:
            knobs.allocate_answer = usual

    @contextmanager
    def watched(self, resource: str) -> Iterator[list[Json]]:
        """Every status that the NodeDevice has in the block, in a list that grows."""
        name = names.node_device_name(self.node.name, resource)
        found: list[Json] = []
        with Observer.node_devices(self.control_plane.admin_kubeconfig) as observer:
            observer.wait(lambda seen: seen.object.metadata.name == name, since=0)
            yield found
            found += [dict(seen.object.status or {}) for seen in observer.seen() if seen.object.metadata.name == name]

    def _agent_process(self, more: Mapping[str, str], environment: Mapping[str, str]) -> MachineProcess:
        kubeconfig = self.control_plane.service_account_kubeconfig(
            SYSTEM_NAMESPACE, "nodedevice-agent", self.node.folder / "agent.kubeconfig", node_name=self.node.name
        )
        flags: dict[str, Any] = {
            "--node-name": self.node.name,
            "--kubeconfig": kubeconfig,
            "--http-address": self._agent_address,
            "--delivery": self.delivery,
            "--log-format": "json",
            **more,
        }
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["/usr/bin/env", *variables, program_path("nodedevice-agent"), "run"]
        for flag, value in flags.items():
            command += [flag, str(value)]
        return self.node.process("agent", command)

    def _agent_answers(self) -> bool:
        return answers(f"http://{self._agent_address}/readyz")
