"""The real agent with devices of a host's sysfs and udevd, selected or by path: what the API shows of them."""

import json

from tests.fakes.sysfs import FakeSysfs
from tests.integration.agent_process import GPU, AgentNode, condition


async def test_no_udevd_is_shown_with_the_remedy(agent_node: AgentNode) -> None:
    host = FakeSysfs(agent_node.folder / "host")
    (host.root / "run/udev/data").rmdir()
    plugins = {
        "hostRoot": str(host.root),
        "generic": [{"resourceName": GPU, "groups": [{"select": {"udev": {"ID_SERIAL": "FTDI_*"}}}]}],
    }
    config = agent_node.folder / "agent.yaml"
    config.write_text(json.dumps({"plugins": plugins}))
    agent_node.start_agent({"--config": str(config)})
    shown = await agent_node.until(lambda seen: "run udevd" in condition(seen, "Healthy").get("message", ""))
    assert shown["total"] == 0


async def test_names_of_the_kernel_are_shown_with_what_to_write(agent_node: AgentNode) -> None:
    host = FakeSysfs(agent_node.folder / "host")
    host.dongle("1-2.3", 0, serial="A5XK3RJT")
    stable = "/dev/serial/by-id/usb-FTDI_A5XK3RJT-if00-port0"
    host.link(stable, "/dev/ttyUSB0")
    plugins = {
        "hostRoot": str(host.root),
        "generic": [{"resourceName": GPU, "groups": [{"paths": [{"path": "/dev/ttyUSB*"}]}]}],
    }
    config = agent_node.folder / "agent.yaml"
    config.write_text(json.dumps({"plugins": plugins}))
    agent_node.start_agent({"--config": str(config)})
    shown = await agent_node.until(lambda seen: "kernel's names" in condition(seen, "Healthy").get("message", ""))
    healthy = condition(shown, "Healthy")
    assert (healthy["status"], healthy["reason"]) == ("True", "AllHealthy")
    assert f"/dev/ttyUSB* ({stable})" in healthy["message"]
    assert shown["available"] == 1
