"""A real node with plugins and, but for the bare kubelet, the agent; and what pods on it come to.

    under_test.run(pod("a", [container("main", {rw.resource: 1})]))     until all of its containers run
    under_test.seen("a", "main")                                        what the container found

Everything waits for what the API or a container says, and gives up with the last that was said.
"""

import asyncio
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError
from lightkube.resources.core_v1 import Node, Pod
from nodedevice_api import names

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane import ControlPlane
from tests.cluster.kubelet import PLUGIN_DIR as KUBELET_PLUGIN_DIR
from tests.cluster.machine import MachineProcess
from tests.cluster.observe import Observer
from tests.cluster.processes import reserved_ports
from tests.cluster.real_node import RealNode
from tests.cluster.stack import program_path
from tests.cluster.waiting import wait_until
from tests.e2e.real_node.given import Kind, Plugins, kinds
from tests.e2e.real_node.pods import CONTAINER_ENV, HELD, REPORTS, UID_ENV, Json, Seen

BARE, NRI, KUBELET = "bare", "nri", "kubelet"
AGENT_PLUGIN_DIR = "/var/lib/nodedevice/device-plugins"
_OURS = "/var/lib/e2e"
_MOUNTED = f"{_OURS}/mounted"
_CDI_FILE = "/run/cdi/e2e.json"
# A kubelet tries a container that it could not create again after ten seconds and more.
PATIENCE_SECONDS = 60.0
_NUDGE_SECONDS = 1.0


class NodeUnderTest:
    """runtime: one of bare, nri, kubelet. Pods are made in a namespace named as the node. loop: plugins run in it.

    of: what plugins there are; each of the usual ones unless it is given.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        node: RealNode,
        runtime: str,
        loop: asyncio.AbstractEventLoop,
        of: Sequence[Kind] | None = None,
    ) -> None:
        self.control_plane, self.node, self.runtime, self.namespace = control_plane, node, runtime, node.name
        self.kinds: Mapping[str, Kind] = {kind.name: kind for kind in (of or kinds())}
        self.reports = node.outside(f"{_OURS}/reports")
        self.held = node.outside(f"{_OURS}/held")
        for folder in (self.reports, self.held):
            folder.mkdir(parents=True)
        self.plugins = Plugins(
            loop, node.outside(self.plugin_dir), list(self.kinds.values()), node.outside(_MOUNTED), Path(_MOUNTED)
        )
        self._uids: dict[str, str] = {}
        self._agent: MachineProcess | None = None
        self._agent_address = ""

    @property
    def plugin_dir(self) -> str:
        """Where plugins register, as the node sees it."""
        return KUBELET_PLUGIN_DIR if self.runtime == BARE else AGENT_PLUGIN_DIR

    @property
    def agent(self) -> MachineProcess:
        assert self._agent is not None, "the bare kubelet has no agent"
        return self._agent

    @contextmanager
    def running(self) -> Iterator[None]:
        """Agent and plugins, for the length of the block."""
        with reserved_ports(1) as (port,):
            self.write_cdi()
            if self.runtime != BARE:
                self._agent = self._agent_process(f"127.0.0.1:{port}")
                self.start_agent()
            try:
                with self.plugins:
                    self.wait_advertised()
                    yield
            finally:
                if self._agent is not None:
                    self._agent.kill()

    def start_agent(self) -> None:
        """Start it, and wait until it says that it is ready. The bare kubelet has none: nothing happens."""
        if self._agent is not None:
            self._agent.start()
            self.wait_agent()

    def wait_agent(self) -> None:
        """Wait until it says that it is ready."""
        self.agent.wait_ready(self._agent_answers, PATIENCE_SECONDS)

    def reboot(self) -> None:
        """Everything of the node, agent and plugins too, gone at once and started again."""
        with self.rebooted_without_plugins():
            pass

    @contextmanager
    def rebooted_without_plugins(self) -> Iterator[None]:
        """Everything gone at once; for the length of the block all is up again but the plugins, then they come, too."""
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

    def write_cdi(self) -> None:
        """Put the plugins' CDI specification where the runtime looks; a reboot removes it."""
        specification = self.node.outside(_CDI_FILE)
        specification.parent.mkdir(exist_ok=True)
        for kind in self.kinds.values():
            if kind.cdi:
                specification.write_text(kind.cdi_specification())

    # -- pods -----------------------------------------------------------------------------------------------------------

    def create(self, body: Json) -> None:
        """Make a pod, for this node; the scheduler binds it."""
        body["metadata"]["namespace"] = self.namespace
        spec = body["spec"]
        spec.setdefault("nodeSelector", {"kubernetes.io/hostname": self.node.name})
        spec["volumes"] = [
            {"name": name, "hostPath": {"path": f"{_OURS}/{path.strip('/')}", "type": "Directory"}}
            for name, path in (("reports", REPORTS), ("held", HELD))
        ]
        asked: Any = Pod.from_dict(body)
        made = self.control_plane.client.create(asked)
        self._uids[made.metadata.name] = made.metadata.uid
        if self.runtime == NRI and self._asks_for_ours(body):
            # from the moment in which a resource is advertised, nobody slips past the policy
            assert names.REQUIRED_PLUGINS_ANNOTATION in (made.metadata.annotations or {}), "the pod is not marked"

    def run(self, body: Json) -> Json:
        """Make a pod and wait until all of its containers run. Returns it as the API shows it then."""
        self.create(body)
        return self.wait_running(body["metadata"]["name"])

    def wait_running_nudged(self, name: str) -> None:
        """As wait_running, but the kubelet is made to look at the pod again and again; by itself it takes ten seconds and more."""
        nudged = time.monotonic()

        def runs(found: Json) -> bool:
            nonlocal nudged
            if time.monotonic() > nudged + _NUDGE_SECONDS:
                nudged = time.monotonic()
                again = f"e2e.example.com/nudged={uuid.uuid4().hex}"
                self.control_plane.kubectl("annotate", "pod", name, "-n", self.namespace, "--overwrite", again)
            return _all_run(found)

        self.wait(name, runs, "all of its containers run")

    def wait_running(self, name: str) -> Json:
        return self.wait(name, _all_run, "all of its containers run")

    def wait(self, name: str, is_so: Callable[[Json], bool], what: str) -> Json:
        """Wait until a pod is as asked; one that is gone is empty. Raises TimeoutError with its last status."""
        last: list[Json] = [{}]

        def look() -> bool:
            last[0] = self.pod(name)
            self.node.verify_alive()
            return is_so(last[0])

        try:
            wait_until(look, f"pod {name}: {what}", PATIENCE_SECONDS)
        except TimeoutError as exc:
            exc.add_note(yaml.safe_dump({"status": last[0].get("status"), "events": self.events(name)}))
            raise
        return last[0]

    def pod(self, name: str) -> Json:
        try:
            found: Json = self.control_plane.client.get(Pod, name, namespace=self.namespace).to_dict()
        except ApiError as exc:
            if exc.status.code != 404:
                raise
            return {}
        return found

    def delete(self, *pods: str, force: bool = False) -> None:
        """Delete pods, with their own grace period, or by force: then the API forgets them before their processes end."""
        for name in pods:
            self.control_plane.client.delete(Pod, name, namespace=self.namespace, grace_period=0 if force else None)
        for name in pods:
            self.wait(name, lambda found: not found, "is gone")

    def remove_pods(self) -> None:
        """Delete what pods are there, by force. None: nothing happens."""
        listed = self.control_plane.kubectl("get", "pods", "-n", self.namespace, "-o", "name")
        self.delete(*(name.removeprefix("pod/") for name in listed.split()), force=True)

    def pid_of(self, name: str, of: str) -> int:
        """Process ID, as seen from here, of a running container."""
        uid = self._uids[name]
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                found = environment.read_bytes().split(b"\0")
                if f"{UID_ENV}={uid}".encode() in found and f"{CONTAINER_ENV}={of}".encode() in found:
                    return int(environment.parent.name)
        raise LookupError(f"no process of {name}/{of} is running")

    def events(self, name: str) -> list[str]:
        """What Events say about a pod."""
        listed = self.control_plane.kubectl("get", "events", "-n", self.namespace, "-o", "json")
        return [
            f"{event['reason']}: {event['message']}"
            for event in json.loads(listed)["items"]
            if event["involvedObject"].get("name") == name
        ]

    # -- what containers found ----------------------------------------------------------------------------------------------

    def seen(self, name: str, of: str = "main") -> Seen:
        """What a container found when it started for the last time; waits for its first word."""
        self.wait(name, lambda _: bool(self.starts(name, of)), f"container {of} has said what it found")
        return self.starts(name, of)[-1]

    def started_at(self, name: str) -> float:
        """When the only container of a pod started, as time.time() counts; waits for it."""
        self.seen(name)
        (report,) = [path for path in self.reports.glob("*.json") if self._uids[name] in path.read_text()]
        return report.stat().st_mtime

    def wait_starts(self, name: str, count: int) -> None:
        """Wait until a pod's containers have started so often, all together."""
        self.wait(name, lambda _: len(self.starts(name)) >= count, f"has started {count} times")

    def starts(self, name: str, of: str | None = None) -> list[Seen]:
        """What a pod's containers, or one of them, found at each start so far, oldest first.

        Of the last pod of that name, also when it is gone.
        """
        files = sorted(self.reports.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        found = [Seen.from_json(path.read_text()) for path in files]
        return [
            seen for seen in found if seen.env[UID_ENV] == self._uids[name] and of in (None, seen.env[CONTAINER_ENV])
        ]

    # -- numbers ----------------------------------------------------------------------------------------------------------

    def wait_advertised(self) -> None:
        """Wait until the Node shows every device of every plugin as allocatable."""
        for kind in self.kinds.values():
            self.wait_allocatable(kind.resource, len(kind.files))

    def wait_allocatable(self, resource: str, count: int) -> None:
        wait_until(
            lambda: self.allocatable(resource) == count, f"{resource} is {count} on {self.node.name}", PATIENCE_SECONDS
        )

    def allocatable(self, resource: str) -> int | None:
        """None where the Node does not show the resource."""
        node = self.control_plane.client.get(Node, self.node.name)
        value = ((node.status.allocatable or {}) if node.status else {}).get(resource)
        return int(value) if value is not None else None

    def node_device(self, resource: str) -> Json:
        """Status of the NodeDevice; empty where there is none."""
        name = names.node_device_name(self.node.name, resource)
        text = self.control_plane.kubectl("get", "nodedevice", name, "-o", "json", check=False)
        return dict(json.loads(text).get("status") or {}) if text else {}

    def wait_numbers(self, resource: str, **numbers: int) -> None:
        """Wait until the NodeDevice shows these numbers."""
        wait_until(
            lambda: numbers.items() <= self.node_device(resource).items(), f"{resource}: {numbers}", PATIENCE_SECONDS
        )

    @contextmanager
    def watched(self, resource: str) -> Iterator[list[Json]]:
        """Every status that the NodeDevice has in the block, in a list that grows."""
        name = names.node_device_name(self.node.name, resource)
        found: list[Json] = []
        with Observer.node_devices(self.control_plane.admin_kubeconfig) as observer:
            observer.wait(lambda seen: seen.object.metadata.name == name, since=0)
            yield found
            found += [dict(seen.object.status or {}) for seen in observer.seen() if seen.object.metadata.name == name]

    def _asks_for_ours(self, body: Json) -> bool:
        containers = [*body["spec"]["containers"], *body["spec"]["initContainers"]]
        asked = {resource for each in containers for resource in each["resources"]["limits"]}
        return not asked.isdisjoint(kind.resource for kind in self.kinds.values())

    def _agent_process(self, address: str) -> MachineProcess:
        self._agent_address = address
        kubeconfig = self.control_plane.service_account_kubeconfig(
            SYSTEM_NAMESPACE, "nodedevice-agent", self.node.folder / "agent.kubeconfig", node_name=self.node.name
        )
        flags: dict[str, Any] = {
            "--node-name": self.node.name,
            "--kubeconfig": kubeconfig,
            "--http-address": address,
            "--runtime": self.runtime,
            "--log-format": "json",
        }
        command = [program_path("nodedevice-agent"), "run"]
        for flag, value in flags.items():
            command += [flag, str(value)]
        return self.node.process("agent", command)

    def _agent_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._agent_address}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _all_run(found: Json) -> bool:
    status = found.get("status", {})
    states = status.get("containerStatuses", [])
    return len(states) == len(found.get("spec", {}).get("containers", [])) > 0 and all(
        "running" in state.get("state", {}) for state in states
    )
