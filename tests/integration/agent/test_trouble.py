"""Each problem around the agent is logged once, in one line with the remedy, and the agent recovers by itself."""

import asyncio
import json
import signal

import grpc
import grpc.aio
import pytest
from nodedevice_api.names import AGENTS_NAMESPACE

from tests.fakes.plugin import FakeDevice
from tests.fakes.sockets import listening
from tests.integration.agent_process import AgentNode, until


def logged(node: AgentNode, *levels: str) -> list[str]:
    """Events logged at these levels."""
    return [line["event"] for line in node.agent.lines() if line["level"] in levels]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_stops_in_order_on_a_signal(node: AgentNode, number: signal.Signals) -> None:
    await node.free_plugin(1)
    assert await node.agent.stop(number) == 0
    assert [line["event"] for line in node.agent.lines()][-2:] == ["stopping", "stopped"]
    assert logged(node, "error") == []
    assert not (node.plugin_dir / "kubelet.sock").exists()


async def test_forbidden_requests_are_logged_once_and_retried(agent_node: AgentNode, namespace: str) -> None:
    control_plane = agent_node.control_plane
    kubeconfig = control_plane.service_account_kubeconfig(
        namespace, "default", agent_node.folder / "stranger", node_name=agent_node.name
    )
    agent_node.start_agent({"--kubeconfig": str(kubeconfig)})
    await agent_node.plugin(1)
    trying = await agent_node.agent.until_logged("lease renewal failed; retrying")
    assert "forbidden" in trying["error"]
    lost = await agent_node.agent.until_logged("API request failed; retrying")
    assert "forbidden" in lost["error"]
    status, text = await agent_node.agent.get("/readyz")
    assert (status, "api server: the lease cannot be renewed" in text) == (503, True)
    binding = f"agent-test-{namespace}"
    subject = f"--serviceaccount={namespace}:default"
    role = ["create", "clusterrolebinding", binding, "--clusterrole=cluster-admin", subject]
    await asyncio.to_thread(control_plane.kubectl, *role)
    try:
        await agent_node.agent.until_ready()
        # each forbidden request is logged once, however often it was tried
        failures = [line for line in agent_node.agent.lines() if "retrying" in line["event"]]
        warned = [(line["event"], line["error"].partition(": ")[0], line.get("lease")) for line in failures]
        assert len(warned) == len(set(warned)), failures
    finally:
        await asyncio.to_thread(control_plane.kubectl, "delete", "clusterrolebinding", binding)


async def test_a_missing_node_is_reported_and_published_when_it_joins(agent_node: AgentNode) -> None:
    kubeconfig = agent_node.kubeconfig()
    late = f"{agent_node.name}-late"
    # the token of another node is refused for this one; the admin's is not
    agent_node.start_agent({"--node-name": late, "--kubeconfig": str(agent_node.control_plane.admin_kubeconfig)})
    assert kubeconfig.exists()
    await agent_node.plugin(2)
    line = await agent_node.agent.until_logged("node not found")
    assert line["error"] == f"there is no Node '{late}' in the cluster; check --node-name, or wait until it has joined"
    status, text = await agent_node.agent.get("/readyz")
    assert (status, "node: there is no Node" in text) == (503, True)
    await asyncio.to_thread(agent_node.control_plane.add_node, late, wait_ready=False)
    try:
        await agent_node.agent.until_ready()
        agent_node.name, before = late, agent_node.name
        await agent_node.until_numbers(total=2, allocated=0, available=2)
        agent_node.name = before
        assert len(agent_node.agent.lines("node not found")) == 1
    finally:
        await asyncio.to_thread(agent_node.control_plane.remove_node, late)


async def test_a_second_agent_waits_for_the_directory_and_takes_over(agent_node: AgentNode) -> None:
    first = agent_node.start_agent()
    plugin = await agent_node.free_plugin(2)
    second = agent_node.start_agent()
    line = await second.until_logged("waiting for the plugin directory")
    assert "is served by another device manager (it holds the directory's lock)" in line["error"]
    assert "--plugin-dir" in line["error"]
    status, text = await second.get("/readyz")
    assert (status, "plugin directory" in text) == (503, True)
    # it has touched nothing
    assert plugin.socket_path.is_socket()
    await plugin.set_health("d0", healthy=False)
    await agent_node.until_numbers(total=2, allocated=0, available=1)
    assert await first.stop() == 0
    await second.until_logged("serving device plugins")
    await plugin.stop()
    await plugin.join(agent_node.plugin_dir)
    await plugin.set_health("d0", healthy=True)
    await agent_node.until_numbers(total=2, allocated=0, available=2)
    await second.until_ready()
    assert len(second.lines("waiting for the plugin directory")) == 1


async def test_a_second_agent_of_the_node_waits_until_the_first_is_dead(agent_node: AgentNode) -> None:
    """With directories of its own, as on another machine: two would allocate the same devices."""
    first = agent_node.start_agent()
    plugin = await agent_node.free_plugin(2)
    await first.until_ready()
    second = agent_node.start_agent({"--plugin-dir": f"{agent_node.folder}/o", "--state-dir": f"{agent_node.folder}/t"})
    line = await second.until_logged("another agent holds the lease; waiting until it expires")
    assert f"lease {AGENTS_NAMESPACE}/{agent_node.name} is held by another agent" in line["error"]
    status, text = await second.get("/readyz")
    assert (status, "--node-name and a --state-dir of its own" in text) == (503, True)
    assert second.lines("serving device plugins") == []
    await plugin.set_health("d0", healthy=False)
    await agent_node.until_numbers(total=2, allocated=0, available=1)
    first.kill()
    await asyncio.to_thread(patch_lease, agent_node, leaseDurationSeconds=1)
    await second.until_logged("serving device plugins")
    await second.until_ready()
    assert len(second.lines("another agent holds the lease; waiting until it expires")) == 1
    # back from wherever it was
    first.start()
    await first.until_logged("another agent holds the lease; waiting until it expires")
    assert first.lines("serving device plugins") == []


async def test_an_agent_whose_lease_another_one_took_stops(node: AgentNode) -> None:
    await node.free_plugin(1)
    await node.agent.until_ready()
    await asyncio.to_thread(patch_lease, node, holderIdentity="another", leaseDurationSeconds=1)
    # a rejected registration renews the lease early
    with pytest.raises(grpc.aio.AioRpcError):
        await node.plugin(1, "no-name-of-a-resource")
    assert await node.agent.ended() == 1
    logged = node.agent.log.read_text()
    assert "is held by another agent (another); stop that one" in logged
    # it is started again, and the other one is dead
    node.agent.start()
    await node.agent.until_ready()


def patch_lease(node: AgentNode, **spec: object) -> None:
    args = ["patch", "lease", node.name, "--namespace", AGENTS_NAMESPACE, "--type=merge", "-p"]
    node.control_plane.kubectl(*args, json.dumps({"spec": spec}))


async def test_a_kubelet_that_takes_the_directory_later_has_it_until_it_ends(node: AgentNode) -> None:
    await node.free_plugin(1)
    await node.agent.until_ready()
    socket_path = node.plugin_dir / "kubelet.sock"
    socket_path.unlink()
    with listening(socket_path):
        inode = socket_path.stat().st_ino
        line = await node.agent.until_logged("device plugins cannot register")
        assert "it listens on kubelet.sock" in line["error"]
        status, text = await node.agent.get("/readyz")
        assert (status, "plugin directory" in text) == (503, True)
        assert socket_path.stat().st_ino == inode
    await node.agent.until_ready()
    await node.plugin({"e0": FakeDevice(), "e1": FakeDevice()}, name="example.com/late")
    await node.until_numbers(total=2, allocated=0, available=2, resource_name="example.com/late")


async def test_nothing_but_the_lease_is_written_while_nothing_changes(node: AgentNode) -> None:
    plugin = await node.plugin(2)
    await node.pod("one")
    await node.until_numbers(total=2, allocated=1, available=1)
    await node.agent.until_ready()

    def renewals() -> int:
        return node.writes().count("update leases")

    # the lease is made, or renewed when it was there
    await until(lambda: any("leases" in write for write in node.writes()), lambda: str(node.writes()))
    seen, before = renewals(), len(node.writes())
    # new roles may take a moment to apply everywhere: earlier lines do not count
    warned = logged(node, "warning", "error")
    for _ in range(3):
        await plugin.resend()
    # the next renewal shows that a whole period has passed
    await until(lambda: renewals() > seen, lambda: f"the lease is renewed: {node.writes()}")
    assert node.writes()[before:] == ["update leases"]
    assert logged(node, "warning", "error") == warned
