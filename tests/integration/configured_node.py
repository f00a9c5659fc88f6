"""A node whose built-in plugins come from NodeDeviceConfigs that select it alone."""

import asyncio
import json
from typing import Any

from nodedevice_api import names

from tests.cluster.api import ApiError, Lease, Node, NodeDeviceConfig
from tests.integration.agent_process import AgentNode, until
from tests.integration.crds.custom_resources import node_device_config

SIMULATED, SERIAL = "example.com/simulated", "example.com/serial"


class ConfiguredNode:
    """A node with a label of its own, and configurations that select it alone."""

    def __init__(self, node: AgentNode) -> None:
        self.node = node
        self.files = node.folder / "files"
        self.files.mkdir()
        self._made: set[str] = set()

    def start_agent(self, **flags: str) -> None:
        self.node.start_agent({"--allowed-host-paths": str(self.node.folder), **flags})

    async def label(self, pool: str | None) -> None:
        patch = {"metadata": {"labels": {"pool": pool}}}
        await asyncio.to_thread(self.node.client.patch, Node, self.node.name, patch)

    async def configure(self, name: str, plugins: dict[str, Any], priority: int = 0, pool: str = "") -> None:
        """Make it, or change it."""
        name = f"{self.node.name}-{name}"
        body = node_device_config(name, plugins, nodeSelector={"pool": pool or self.node.name}, priority=priority)
        self._made.add(name)
        await asyncio.to_thread(self.node.client.apply, body, field_manager="admin", force=True)

    async def remove(self, name: str) -> None:
        name = f"{self.node.name}-{name}"
        self._made.discard(name)
        await asyncio.to_thread(self.node.client.delete, NodeDeviceConfig, name)

    async def close(self) -> None:
        for name in list(self._made):
            await asyncio.to_thread(self.node.client.delete, NodeDeviceConfig, name)

    def serial(self, pattern: str = "tty*", **group: Any) -> dict[str, Any]:
        groups = [{"paths": [{"path": f"{self.files}/{pattern}"}], "allowFiles": True, **group}]
        return {"generic": [{"resourceName": SERIAL, "groups": groups}]}

    def reported(self) -> dict[str, Any]:
        """By the configuration's name without the node's: what the agent says of it on its Lease."""
        try:
            found = self.node.client.get(Lease, self.node.name, namespace=names.AGENTS_NAMESPACE)
        except ApiError:
            return {}
        annotations = (found.metadata.annotations if found.metadata else None) or {}
        text = annotations.get(names.CONFIGS_ANNOTATION, "{}")
        return {name.removeprefix(f"{self.node.name}-"): outcome for name, outcome in json.loads(text).items()}

    async def until_reported(self, expected: dict[str, Any]) -> None:
        await until(lambda: self.reported() == expected, lambda: f"{self.reported()} becomes {expected}")

    async def until_total(self, resource: str, total: int) -> None:
        await self.node.until(lambda seen: seen["total"] == total, resource)


def simulated(count: int) -> dict[str, Any]:
    return {"simulated": [{"resourceName": SIMULATED, "count": count}]}


async def until_capacity(configured: ConfiguredNode, number: int | None, resource: str = SIMULATED) -> None:
    node, wanted = configured.node, None if number is None else str(number)
    await until(lambda: node.capacity(resource) == wanted, lambda: f"{node.capacity(resource)} becomes {wanted}")


async def until_deleted(configured: ConfiguredNode, resource: str = SIMULATED) -> None:
    """It is gone, its capacity too, and the agent has forgotten it."""
    node = configured.node
    await until(lambda: not node.object(resource), lambda: f"gone: {json.dumps(node.object(resource), indent=1)}")
    assert node.capacity(resource) is None
    forgotten = "resource forgotten: its plugin is gone"
    await until(
        lambda: any(line["resource_name"] == resource for line in node.agent.lines(forgotten)),
        lambda: f"{forgotten}: {node.agent.tail()}",
    )
