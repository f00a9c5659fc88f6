import asyncio, time
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.agent_process import AgentNode, condition, holdings
import yaml
from pathlib import Path
def kubeconfig_by(proxy,node):
    c=yaml.safe_load(node.kubeconfig().read_text()); c["clusters"][0]["cluster"]={"server":proxy.url}; p=Path(node.folder,"by-proxy"); p.write_text(yaml.safe_dump(c)); return str(p)


async def test_frozen(agent_node: AgentNode, proxy: FaultProxy) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(kubeconfig_by, proxy, agent_node)})
    await agent_node.free_plugin(2)
    proxy.is_frozen.set()
    began = time.monotonic()
    await agent_node.pod("one")
    last = None
    while time.monotonic() - began < 130:
        status = await asyncio.to_thread(agent_node.status)
        ready = await agent_node.agent.get("/readyz")
        now = (holdings(status), condition(status, "WatchesCurrent").get("status"), ready)
        if now != last:
            print(f"{time.monotonic() - began:.0f} s", now)
        last = now
        await asyncio.sleep(1)
    proxy.is_frozen.clear()
    began = time.monotonic()
    while time.monotonic() - began < 75:
        status = await asyncio.to_thread(agent_node.status)
        ready = await agent_node.agent.get("/readyz")
        now = (holdings(status), condition(status, "WatchesCurrent").get("status"), ready)
        if now != last:
            print(f"unfrozen {time.monotonic() - began:.0f} s", now)
        last = now
        await asyncio.sleep(1)
