"""Watches in trouble: no hammering, no blindness. The real agent, and a proxy before the real API server."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import yaml

from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration.agent_process import AgentNode, holdings

ENDLESS = 10**9
WATCHED = ("/pods", "/nodedevices")
RESOURCES = 4
MEASURED_SECONDS = 10.0
MOST_A_SECOND = 5

GONE = refusal(410, "Expired", "too old resource version")
GONE_EVENT = json.dumps({"type": "ERROR", "object": json.loads(GONE)}).encode() + b"\n"


def kubeconfig_by(proxy: FaultProxy, node: AgentNode) -> str:
    """The agent's own credentials, by that proxy."""
    content = yaml.safe_load(node.kubeconfig().read_text())
    content["clusters"][0]["cluster"] = {"server": proxy.url}
    path = Path(node.folder, "by-proxy")
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.fixture
async def proxied(agent_node: AgentNode, proxy: FaultProxy) -> AgentNode:
    """Its agent reaches the API server by the proxy, and has some resources."""
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(kubeconfig_by, proxy, agent_node)})
    for number in range(1, RESOURCES):
        await agent_node.free_plugin(1, f"example.com/r{number}")
    await agent_node.free_plugin(2)
    return agent_node


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, b"", id="end at once"),
        pytest.param(410, GONE, id="are refused as too old"),
        pytest.param(200, GONE_EVENT, id="end as too old"),
        pytest.param(
            200, b'{"type":"MODIFIED","object":{"metadata":{"name":"x","resourceVersion":"1"}}}\n', id="repeat"
        ),
        pytest.param(503, refusal(503, "ServiceUnavailable", "no"), id="are unavailable"),
    ],
)
async def test_the_api_server_is_not_hammered_when_watches(
    proxied: AgentNode, proxy: FaultProxy, status: int, body: bytes
) -> None:
    for path in WATCHED:
        proxy.rule("WATCH", path, ENDLESS, status, body)
    began = time.monotonic()
    proxy.cut("pods")
    proxy.cut("nodedevices")
    await asyncio.sleep(MEASURED_SECONDS)
    found = [method for when, method, path in proxy.requests if when > began and path.endswith(WATCHED)]
    counts = {method: found.count(method) for method in ("GET", "WATCH")}
    assert len(found) <= MOST_A_SECOND * MEASURED_SECONDS, counts
    # pods get their devices all the same, a little later
    await proxied.pod("one")
    await proxied.until(lambda seen: set(holdings(seen)) == {"one/c0"})
