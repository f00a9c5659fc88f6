"""A whole agent as a process, with everything around it that it has on a node: what it costs in memory, and its longest turns.

    async with Scene(folder) as scene:
        scene.api.put(PODS, …)            before the agent starts, or while it runs
        scene.start()
        await scene.until_quiet()
        scene.peak_mib(), scene.turns()

The runtime, the kubelet and device plugins are the fakes of tests/fakes on real sockets; the API server is played.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import yaml
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES

from hack.bench.footprint import cpu_seconds
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.played_api.kinds import NODES
from tests.fakes.played_api.server import PlayedApi
from tests.fakes.played_api.serving import kubeconfig, serving
from tests.fakes.plugin import FakePlugin
from tests.fakes.pod_resources import PodResources
from tests.integration.agent_process import AgentProcess

NODE: Final = "node-a"
# of a core; what an idle agent uses is a tenth of that
_QUIET: Final = 0.05
_QUIET_SECONDS: Final = 2.0
# ends a test that hangs, and decides nothing else
_PATIENCE_SECONDS: Final = 240.0


@dataclass(frozen=True)
class Turn:
    """Of the agent's event loop. cpu_ms: of its thread, calls into C included. at: seconds since it serves device plugins.

    places: where another thread has seen it, innermost first. gc_ms: what of cpu_ms was spent on the search for garbage.
    """

    cpu_ms: float
    name: str
    at: float
    places: list[str]
    gc_ms: float


class Scene:
    """settings: of the agent's file, until start(). Everything ends with the block."""

    def __init__(self, folder: Path) -> None:
        """folder: has a short path, as sockets lie below it."""
        self.folder = folder
        self.api = PlayedApi()
        self.host_root, self.plugin_dir, self.kubelet_dir = folder / "host", folder / "p", folder / "k"
        self.runtime = FakeRuntime(folder / "nri.sock")
        for made in ("device-plugins", "pod-resources"):
            (self.kubelet_dir / made).mkdir(parents=True)
        self.pod_resources = PodResources(self.kubelet_dir / "pod-resources" / "kubelet.sock")
        self.settings: dict[str, Any] = {
            "nodeName": NODE,
            "kubeconfig": str(folder / "kubeconfig"),
            "pluginDir": str(self.plugin_dir),
            "stateDir": str(folder / "s"),
            "kubeletDir": str(self.kubelet_dir),
            "nriSocket": str(self.runtime.socket),
            "httpAddress": "127.0.0.1:0",
            "delivery": "nri",
            "plugins": {"hostRoot": str(self.host_root)},
        }
        # of the resource names that a node may have, those that are left for names whose plugin is gone
        self.names_of_gone = MAX_NAMES
        self.agent: AgentProcess
        self._turns = folder / "turns"
        self._plugins: list[FakePlugin] = []
        self._ends = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self.host_root.mkdir()
        self._ends.enter_context(serving(self.api))
        await self._ends.enter_async_context(self.runtime)
        await self._ends.enter_async_context(self.pod_resources)
        self.api.put(NODES, {"metadata": {"name": NODE, "uid": "uid-of-node", "labels": {"pool": "a"}}})
        return self

    async def __aexit__(self, *_: object) -> None:
        if hasattr(self, "agent"):
            self.agent.kill()
        for plugin in self._plugins:
            await plugin.stop()
        await self._ends.aclose()

    def start(self) -> None:
        """The agent, with what was prepared."""
        kubeconfig(self.folder, self.api.address, token="t")
        (self.folder / "agent.yaml").write_text(yaml.safe_dump(self.settings))
        # the deadlines are the product's
        flags = {"--config": str(self.folder / "agent.yaml")}
        self.agent = AgentProcess(self.folder, "agent", flags, constants={}, turns=self._turns)
        self.agent.start()

    async def plugin(self, plugin: FakePlugin) -> FakePlugin:
        """Registered with the agent, which serves."""
        self._plugins.append(plugin)
        await self.agent.until_logged("serving device plugins")
        await plugin.join(self.plugin_dir)
        return plugin

    async def until_quiet(self) -> None:
        """The agent is ready, and for two seconds it has hardly used the CPU."""
        await self.agent.until_ready()
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                before = cpu_seconds(self.agent.pid)
                await asyncio.sleep(_QUIET_SECONDS)
                self.agent.verify_running()
                if cpu_seconds(self.agent.pid) - before < _QUIET * _QUIET_SECONDS:
                    return

    def peak_mib(self) -> float:
        """Of the agent's resident memory since its start."""
        return self._status("VmHWM")

    def kept_mib(self) -> float:
        """Of its resident memory now."""
        return self._status("VmRSS")

    def turns(self) -> list[Turn]:
        """Its long turns so far since it serves device plugins, the longest first. Before that it imports modules."""
        serving = self.agent.lines("serving device plugins")[0]["time"]
        began = datetime.fromisoformat(serving).timestamp()
        text = self._turns.read_text(encoding="utf-8") if self._turns.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        found = [
            Turn(line["cpu_ms"], line["name"], line["at"] - began, line["places"], line["gc_ms"]) for line in lines
        ]
        return sorted((turn for turn in found if turn.at > 0), key=lambda turn: -turn.cpu_ms)

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.agent.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
