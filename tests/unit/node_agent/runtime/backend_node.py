"""The backend for a runtime with NRI, on a node whose host carries out effects at once."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib.deviceplugin_server.values import Injector
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings

from tests.fakes.kubelet_reader import reader_of
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox


class BackendNode:
    """changes: how often the condition may have changed. clock: the scenario's by default."""

    def __init__(
        self,
        folder: Path,
        scenario: RuntimeScenario | None = None,
        clock: Callable[[], float] | None = None,
        reader: KubeletReader | None = None,
        **settings: Any,
    ) -> None:
        self.scenario = scenario or RuntimeScenario.with_plugin(2)
        self.changes = 0
        self.injector = Injector()
        self.effects_done = asyncio.Event()
        host = SimpleNamespace(manager=self.scenario.manager, settle=self.scenario.settled, saved=self.saved)
        host.now, host.effects_done = clock or (lambda: self.scenario.now), self.effects_done
        given = AgentSettings(**{"nri_socket": str(folder / "nri.sock"), **settings})
        self.backend = NriBackend(
            given, cast(PluginHost, host), reader or reader_of(folder), self._changed, self.injector
        )

    async def saved(self, pod_uid: str) -> None:
        """At once."""

    def _changed(self) -> None:
        self.changes += 1

    @property
    def condition(self) -> tuple[str, str] | None:
        found = self.backend.injectable(self.scenario.snapshot_with_runtime())
        return None if found is None else found[:2]

    @property
    def message(self) -> str:
        """Of the condition."""
        found = self.backend.injectable(self.scenario.snapshot_with_runtime())
        return "" if found is None else found[2]

    async def create(self, uid: str, name: str = "main", number: int = 1) -> Any:
        return await self.backend.create_container(sandbox(uid, held=True), container(uid, name, number=number))
