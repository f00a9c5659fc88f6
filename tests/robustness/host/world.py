"""The made-up host with its agent, its runtime and its pods: what can happen, one event a method.

The hardware, the pods and the containers outlive the agent, which may be killed and started between any two events.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, RuntimeDevice, Sandbox
from nodedevice_agent.runtime.injection import Grant, Refusal
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, NRI_PLUGIN, REQUIRED_PLUGINS_ANNOTATION

from tests.robustness.host.agent import Agent
from tests.robustness.host.configs import Config
from tests.robustness.host.faults import Faults
from tests.robustness.host.hardware import Node
from tests.robustness.host.host import Host

FOREIGN = "foreign.test/raw"


@dataclass(frozen=True)
class GivenFile:
    """A device file in a container. node, identity: what it led to when the container was created; its number stays."""

    resource_name: str
    path: str
    node: Node
    identity: tuple[str, str, str]


@dataclass
class Instance:
    """A container that runs."""

    sandbox: Sandbox
    shown: RunningContainer
    files: tuple[GivenFile, ...]

    @property
    def pod_uid(self) -> str:
        return self.sandbox.uid


@dataclass
class Started:
    """What came of the start of a container. refusal: why it did not start; files: what it was given. held: its allocations."""

    pod_uid: str
    container: str
    refusal: str = ""
    files: tuple[GivenFile, ...] = ()
    held: tuple[Allocation, ...] = ()


class World:
    """agent: None while it is killed. instances: of containers that run, by ID; also those of pods that are gone."""

    def __init__(self, root: Path, draw: random.Random, faults: Faults) -> None:
        self.root = root
        self.faults = faults
        self.host = Host(root, draw, faults.paths)
        self.config = Config(draw)
        self.pods: dict[str, Pod] = {}
        self.instances: dict[str, Instance] = {}
        self.cordons: dict[str, set[str]] = {}
        self.now = 1000.0
        self.agent: Agent | None = None
        self.started: Started | None = None
        self._count = 0
        self._read_version: dict[str, int] = {}
        self.start_agent(draw)

    # -- the agent ------------------------------------------------------------------------------------------------------------

    @property
    def running_agent(self) -> Agent:
        """Where it is known to run."""
        assert self.agent is not None
        return self.agent

    def start_agent(self, draw: random.Random) -> None:
        """It knows what its checkpoint says, the runtime's containers, and the API's pods; then its plugins register."""
        (self.root / "boot_id").write_text(self.host.boot_id)
        settings = self.config.settings()
        agent = self.agent = Agent(self.root, settings, self.now)
        agent.apply(settings)
        agent.save()
        events = [self._synchronize, self._list_pods]
        draw.shuffle(events)
        for event in events:
            event(agent)
        for name in list(agent.manager.resources):
            self._show_cordons(name)
        for name in draw.sample(names := [each.name for each in self.config.resources], len(names)):
            self.start_plugin(name)

    def _synchronize(self, agent: Agent) -> None:
        running = list(self.instances.values())
        agent.events.synchronized([i.sandbox for i in running], [i.shown for i in running], agent.now)
        agent.settle()

    def _list_pods(self, agent: Agent) -> None:
        agent.manager.pod_events.synced(self.pods.values(), agent.now)
        agent.settle()

    def start_plugin(self, name: str) -> None:
        if self.agent is not None:
            self.agent.start(name)
            self._read_version[name] = self.host.version
            self._show_cordons(name)
            self.agent.refresh(name, reads=False)

    def stop_plugin(self, name: str) -> None:
        if self.agent is not None and name in self.agent.plugins:
            self.agent.stop(name)

    def settle(self, draw: random.Random) -> None:
        """Plugins have noticed whatever is new on the host, in any order."""
        if self.agent is None:
            return
        for name in draw.sample(names := sorted(self.agent.plugins), len(names)):
            reads = self._read_version.get(name) != self.host.version or self.agent.plugins[name].source.is_in_doubt
            self._read_version[name] = self.host.version
            self.agent.refresh(name, reads=reads)

    def reconfigure(self, draw: random.Random) -> str:
        """Somebody edits the configuration."""
        edit = self.config.edit(draw)
        if self.agent is not None:
            self.agent.apply(self.config.settings())
            for name in draw.sample(names := [each.name for each in self.config.resources], len(names)):
                # those that were ended, and new ones; one that was killed comes back, too
                self.start_plugin(name)
            self._read_version.clear()
        return edit

    def reboot(self, draw: random.Random) -> None:
        self.agent = None
        self.instances.clear()
        self.host.reboot(draw)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        if self.agent is not None:
            self.agent.tick(self.now)

    def cordon(self, name: str, device_id: str) -> None:
        self.cordons.setdefault(name, set()).add(device_id)
        self._show_cordons(name)

    def uncordon(self, name: str) -> None:
        self.cordons.pop(name, None)
        self._show_cordons(name)

    def _show_cordons(self, name: str) -> None:
        if self.agent is not None:
            found = dict.fromkeys(sorted(self.cordons.get(name, ())), Cordon())
            self.agent.manager.table.cordoned(name, f"object of {name}", found)
            self.agent.settle()

    def start_foreign(self, path: str) -> None:
        if self.agent is not None and FOREIGN not in self.agent.foreign:
            self.agent.start_foreign(FOREIGN, {"f0": path})
            self._show_cordons(FOREIGN)

    def stop_foreign(self) -> None:
        if self.agent is not None and FOREIGN in self.agent.foreign:
            self.agent.stop_foreign(FOREIGN)

    # -- pods ---------------------------------------------------------------------------------------------------------------

    def create_pod(self, requests: list[dict[str, int]]) -> str:
        """requests: of each container, counts by resource name. Returns the UID."""
        self._count += 1
        uid = f"pod-{self._count}"
        containers = tuple(Container(f"c{n}", ContainerKind.APP, limits) for n, limits in enumerate(requests))
        pod = self.pods[uid] = Pod(uid, "default", uid, containers)
        if self.agent is not None:
            self.agent.manager.pod_events.seen(pod, self.agent.now)
            self.agent.settle()
        return uid

    def delete_pod(self, uid: str) -> None:
        """Its containers may still run."""
        del self.pods[uid]
        if self.agent is not None:
            self.agent.manager.pod_events.gone(uid, self.agent.now)
            self.agent.settle()

    def start_container(self, uid: str, name: str) -> None:
        """`started` has what came of it."""
        if self.agent is None:
            return
        self._count += 1
        sandbox = Sandbox(f"sandbox-{uid}", uid, "default", uid, {REQUIRED_PLUGINS_ANNOTATION: f"[{NRI_PLUGIN}]"})
        decision = self.agent.decide(sandbox, name)
        self.started = Started(uid, name)
        match decision:
            case Refusal():
                self.started.refusal = decision.message
                self.started.held = tuple(self.agent.manager.book.of_container(uid, name))
            case Grant():
                self._create(sandbox, RunningContainer(f"{uid}-{name}-{self._count}", sandbox.id, name), decision)

    def _create(self, sandbox: Sandbox, container: RunningContainer, grant: Grant) -> None:
        """The runtime makes the device files with the numbers of this moment."""
        assert self.started is not None
        held = self.started.held = grant.version.allocations
        wanted = [(a.resource_name, file.host_path) for a in held if a.edits for file in a.edits.devices]
        found = [(name, path, self.host.node(path)) for name, path in wanted]
        files = tuple(_given(name, path, node) for name, path, node in found if node is not None)
        shown = RunningContainer(
            container.id,
            sandbox.id,
            container.name,
            ContainerState.RUNNING,
            devices=tuple(map(_runtime_device, files)),
            annotations={CONTAINER_DEVICES_ANNOTATION: grant.edits.annotations[CONTAINER_DEVICES_ANNOTATION]},
            pid=1,
            pod_uid=sandbox.uid,
        )
        numbers = {file.node.number for file in files} if len(files) == len(found) else None
        self.started.refusal = self.running_agent.created(sandbox, shown, grant, numbers)
        if not self.started.refusal:
            self.started.files = files
            self.instances[container.id] = Instance(sandbox, shown, files)

    def end_container(self, instance: Instance) -> None:
        del self.instances[instance.shown.id]
        if self.agent is not None:
            self.agent.ended(instance.pod_uid, instance.shown.id)

    def waiting_containers(self) -> list[tuple[str, str]]:
        """Containers of pods that do not run: pod UID and name."""
        running = {(i.pod_uid, i.shown.name) for i in self.instances.values()}
        return [
            (pod.uid, c.name) for pod in self.pods.values() for c in pod.containers if (pod.uid, c.name) not in running
        ]


def _given(resource_name: str, path: str, node: Node) -> GivenFile:
    return GivenFile(resource_name, path, node, node.stick.identity if node.stick is not None else ("", "", ""))


def _runtime_device(file: GivenFile) -> RuntimeDevice:
    major, _, minor = file.node.number[1:].partition(":")
    return RuntimeDevice(file.path, file.node.number[0], int(major), int(minor))
