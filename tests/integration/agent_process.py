"""The real agent as a process on a node of its own, and what the API shows of it.

    node.start_agent()                      the real program, with the account's own token
    await node.plugin(2)                    a device plugin in this process, registered
    await node.until(lambda seen: seen["available"] == 2)

Everything waits for what the API says and gives up with its last answer. API calls go through threads: plugins live in
the test's event loop and must not be held up.
"""

import asyncio
import json
import signal
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from nodedevice_api.names import node_device_name
from tenacity import AsyncRetrying, RetryError, retry_if_result, stop_after_delay

from tests.cluster.api import ApiError, Node, NodeDevice, Object, Pod
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.loopback import fetch
from tests.cluster.waiting import pauses
from tests.fakes.dra import pod_claims
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.deadlines import DEADLINES, environment
from tests.integration.product_process import PATIENCE_SECONDS, PROGRAMS, Json, ProductProcess

GPU = "example.com/gpu"
_WRITES = ("create", "update", "patch", "delete")
AGENT_USER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:nodedevice-agent"


class AgentProcess(ProductProcess):
    """nodedevice-agent run. constants: of its modules, by dotted name, that are others in it. turns: see environment()."""

    def __init__(
        self,
        folder: Path,
        name: str,
        flags: Mapping[str, str],
        *switches: str,
        constants: Mapping[str, float] = DEADLINES,
        turns: Path | None = None,
        programs: Path = PROGRAMS,
    ) -> None:
        variables = environment(constants, turns)
        super().__init__("nodedevice-agent", folder, name, flags, switches, environment=variables, programs=programs)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal; returns the exit status."""
        self.signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Exit status, once it has ended by itself."""
        return await asyncio.to_thread(self.wait_ended)

    async def until_logged(self, event: str, count: int = 1) -> Json:
        """The count-th line with this event."""
        await until(lambda: len(self.lines(event)) >= count, lambda: f"{event!r} logged {count} times: {self.tail()}")
        return self.lines(event)[count - 1]

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page that it serves."""
        return await asyncio.to_thread(fetch, f"http://{await self.address()}{path}")

    async def address(self) -> str:
        """HOST:PORT where it answers over HTTP, once it does."""
        await until(lambda: self.found_address() != "", lambda: f"HTTP: {self.tail()}")
        return self.found_address()

    async def until_ready(self) -> None:
        url = f"http://{await self.address()}/readyz"

        def is_ready() -> bool:
            self.verify_running()
            return fetch(url)[0] == HTTPStatus.OK

        await until(is_ready, lambda: f"ready: {self.tail()}")


class AgentNode:
    """A Node with its agents, plugins and pods. close() ends them all and removes the Node."""

    def __init__(self, control_plane: ControlPlane, namespace: str, name: str, folder: Path) -> None:
        self.control_plane = control_plane
        self.client = control_plane.client
        self.namespace, self.name, self.folder = namespace, name, folder
        self.plugin_dir, self.state_dir = folder / "p", folder / "s"
        # of the agents that are started from now on
        self.constants, self.programs = dict(DEADLINES), PROGRAMS
        self._agents: list[AgentProcess] = []
        self._plugins: list[FakePlugin] = []
        self.agent: AgentProcess

    # -- agents -------------------------------------------------------------------------------------------------------

    def start_agent(self, flags: Mapping[str, str] | None = None, *switches: str) -> AgentProcess:
        """Start an agent for this node; the latest one is `agent`. flags: over the usual ones, "" for the program's default.

        Unless a runtime is given, devices are advertised and reach no container: there are none.
        """
        if "--delivery" not in (flags or {}):
            switches = ("--advertise-without-injection", *switches)
        usual = {
            "--delivery": "none",
            "--node-name": self.name,
            "--plugin-dir": str(self.plugin_dir),
            "--state-dir": str(self.state_dir),
            "--kubelet-dir": str(self.folder / "k"),
            "--http-address": "127.0.0.1:0",
            **(flags or {}),
        }
        if "--kubeconfig" not in usual:
            usual["--kubeconfig"] = str(self.kubeconfig())
        given = {flag: value for flag, value in usual.items() if value}
        name = f"agent-{len(self._agents)}"
        self.agent = AgentProcess(self.folder, name, given, *switches, constants=self.constants, programs=self.programs)
        self._agents.append(self.agent)
        self.agent.start()
        return self.agent

    def kubeconfig(self) -> Path:
        """Of the agents' account, bound to this node as a mounted token is."""
        return self.control_plane.service_account_kubeconfig(
            SYSTEM_NAMESPACE, "nodedevice-agent", self.folder / "kubeconfig", node_name=self.name
        )

    def kubeconfig_by(self, url: str) -> str:
        """The same credentials, by a proxy at that URL."""
        content = yaml.safe_load(self.kubeconfig().read_text())
        content["clusters"][0]["cluster"] = {"server": url}
        path = self.folder / "by-proxy"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    async def plugin(self, devices: int | Mapping[str, FakeDevice], name: str = GPU, **options: Any) -> FakePlugin:
        """A plugin of so many healthy devices (d0, d1, ...), or of these, registered with the agent that serves."""
        if isinstance(devices, int):
            devices = {f"d{index}": FakeDevice() for index in range(devices)}
        plugin = FakePlugin(name, devices, **options)
        self._plugins.append(plugin)
        await self.agent.until_logged("serving device plugins")
        await plugin.join(self.plugin_dir)
        return plugin

    async def free_plugin(self, count: int, name: str = GPU, **options: Any) -> FakePlugin:
        """A plugin whose devices the API shows, all of them available."""
        plugin = await self.plugin(count, name, **options)
        await self.until_numbers(total=count, allocated=0, available=count, resource_name=name)
        return plugin

    # -- what the API shows -----------------------------------------------------------------------------------------------

    def object(self, resource_name: str = GPU) -> Json:
        """The NodeDevice; empty where there is none."""
        try:
            found: Any = self.client.get(NodeDevice, node_device_name(self.name, resource_name))
        except ApiError as exc:
            if exc.status.code != 404:
                raise
            return {}
        return dict(found.to_dict())

    def status(self, resource_name: str = GPU) -> Json:
        """Its status; empty where there is none."""
        return dict(self.object(resource_name).get("status") or {})

    async def until(self, holds: Callable[[Json], bool], resource_name: str = GPU) -> Json:
        """The status, once this holds of it; before there is one it does not."""
        seen: Json = {}

        def ask() -> bool:
            nonlocal seen
            self.agent.verify_running()
            seen = self.status(resource_name)
            return bool(seen) and holds(seen)

        await until(ask, lambda: f"the status is {json.dumps(seen, indent=1)}")
        return seen

    async def until_numbers(self, total: int, allocated: int, available: int, resource_name: str = GPU) -> Json:
        wanted = {"total": total, "allocated": allocated, "available": available}
        return await self.until(lambda seen: {key: seen.get(key) for key in wanted} == wanted, resource_name)

    def capacity(self, resource_name: str = GPU) -> str | None:
        """What the Node shows."""
        status = self.client.get(Node, self.name).status
        return ((status.capacity if status else None) or {}).get(resource_name)

    def version(self, resource_name: str = GPU) -> str:
        """resourceVersion: equal before and after means that nobody wrote."""
        return str(self.object(resource_name)["metadata"]["resourceVersion"])

    def writes(self) -> list[str]:
        """What agents wrote about this node so far, as `patch nodedevices/status`, from the API server's audit log."""
        found = []
        for event in self.control_plane.audit_events():
            about = event.get("objectRef", {})
            is_ours = event["user"]["username"] == AGENT_USER and str(about.get("name", "")).startswith(self.name)
            if is_ours and event["verb"] in _WRITES:
                found.append(f"{event['verb']} {'/'.join(filter(None, (about['resource'], about.get('subresource'))))}")
        return found

    async def edit(self, patch: Json, *, subresource: str = "", resource_name: str = GPU) -> None:
        """A merge patch as an administrator's."""
        name = node_device_name(self.name, resource_name)
        args = ["patch", "nodedevice", name, "--type=merge", "-p", json.dumps(patch)]
        args += [f"--subresource={subresource}"] if subresource else []
        await asyncio.to_thread(self.control_plane.kubectl, *args)

    # -- pods -----------------------------------------------------------------------------------------------------------

    async def pod(
        self,
        name: str,
        limits: Sequence[int] = (1,),
        init: Sequence[int] = (),
        resource: str = GPU,
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """A pod bound to this node, past the scheduler; one container for each number of devices. Returns its uid."""
        spec = Object(
            nodeName=self.name,
            initContainers=[_container(f"i{index}", resource, count) for index, count in enumerate(init)],
            containers=[_container(f"c{index}", resource, count) for index, count in enumerate(limits)],
            terminationGracePeriodSeconds=0,
        )
        metadata = Object(name=name, namespace=self.namespace, annotations=dict(annotations or {}))
        made = await asyncio.to_thread(self.client.create, Pod(metadata=metadata, spec=spec))
        return str(made.metadata.uid)

    async def claiming_pod(self, name: str, claim: str) -> None:
        """A pod bound to this node, whose container c0 has that ResourceClaim."""
        spec = {
            "nodeName": self.name,
            "containers": [{"name": "c0", "image": "none", "resources": {"claims": [{"name": "devices"}]}}],
            "resourceClaims": pod_claims({"devices": claim}),
            "terminationGracePeriodSeconds": 0,
        }
        body: Any = Pod.from_dict({"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
        await asyncio.to_thread(lambda: self.client.create(body))

    async def delete_pod(self, name: str) -> None:
        await asyncio.to_thread(self.client.delete, Pod, name, namespace=self.namespace, grace_period=0)

    async def complete_pod(self, name: str) -> None:
        done = json.dumps({"status": {"phase": "Succeeded"}})
        args = ["patch", "pod", name, "--namespace", self.namespace, "--subresource=status", "-p", done]
        await asyncio.to_thread(self.control_plane.kubectl, *args)

    async def close(self) -> None:
        for agent in self._agents:
            agent.kill()
        for plugin in self._plugins:
            await plugin.stop()
        await asyncio.to_thread(self.control_plane.remove_node, self.name)
        for agent in self._agents:
            agent.verify_no_traceback()


def holdings(status: Json) -> dict[str, list[str]]:
    """Device IDs by `pod/container`."""
    return {f"{a['name']}/{a['container']}": a["deviceIDs"] for a in status.get("allocations", ())}


def reasons(status: Json) -> dict[str, str]:
    """Why each waiting pod waits, by its name."""
    return {w["name"]: w["reason"] for w in status.get("waiting", ())}


def condition(status: Json, kind: str) -> Json:
    """One condition; empty where there is none."""
    return next((dict(c) for c in status.get("conditions", ()) if c["type"] == kind), {})


async def until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    """Ask in a thread until it holds. what: the message when it never does."""
    asking = AsyncRetrying(
        retry=retry_if_result(lambda answer: not answer), wait=pauses(), stop=stop_after_delay(PATIENCE_SECONDS)
    )
    try:
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            await asking(asyncio.to_thread, holds)
    except (RetryError, TimeoutError):
        raise AssertionError(f"never so: {what()}") from None


def _container(name: str, resource: str, count: int) -> Object:
    needs = Object(limits={resource: str(count)}) if count else None
    return Object(name=name, image="none", resources=needs)
