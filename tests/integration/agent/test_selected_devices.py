"""The real agent with devices of a host's sysfs and udevd, selected or by path: what the API shows of them."""

import json

from tests.fakes.sysfs import FakeSysfs
from tests.integration.agent_process import GPU, AgentNode, condition

_DONGLE = "0403-6001-A5XK3RJT"


async def test_a_dongle_is_a_device_with_its_files(agent_node: AgentNode) -> None:
    host = FakeSysfs(agent_node.folder / "host")
    host.dongle("1-2.3", 0, serial="A5XK3RJT")
    for number in ("c188:0", "c240:0"):
        host.udev(number, ID_SERIAL="FTDI_A5XK3RJT")
    group = {"select": {"usb": {"vendor": "0403"}, "udev": {"ID_SERIAL": "FTDI_*"}}, "count": 2}
    plugins = {"hostRoot": str(host.root), "generic": [{"resourceName": GPU, "groups": [group]}]}
    config = agent_node.folder / "agent.yaml"
    config.write_text(json.dumps({"plugins": plugins}))
    agent_node.start_agent({"--config": str(config)})
    shown = await agent_node.until_numbers(total=2, allocated=0, available=2)
    assert [device["id"] for device in shown["devices"]] == [f"{_DONGLE}::0", f"{_DONGLE}::1"]
    assert shown["devices"][0]["attributes"] == {
        "files": "/dev/hidraw0 /dev/ttyUSB0",
        "usb": "0403:6001",
        "usbPort": "1-2.3",
        "usbSerial": "A5XK3RJT",
    }
    host.unplug("1-2.3")
    await agent_node.until_numbers(total=0, allocated=0, available=0)


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
