"""A container with units of a GPU: what it gets by the real agent, and its directory on the host, over kill -9 and restarts."""

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from nodedevice_api.names import SM_PERCENT_ANNOTATION

from hack.fake_nvml.library import FakeNvml
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.integration.agent_process import AgentNode, reasons, until
from tests.integration.nri import by_nri, container, sandbox
from tests.integration.nvml.gpu_node import plugins

UNITS = "aliyun.com/gpu-mem"
PER_GPU = 13
LIBRARY = "/usr/local/vgpu/libvgpu.so"
RULES: list[dict[str, dict[str, object]]] = [{"memory": {"limits": {"library": LIBRARY}}}]
Serve = Callable[[], AbstractAsyncContextManager[None]]


@pytest.fixture
def host(agent_node: AgentNode) -> Path:
    """The host's /usr/local/vgpu, with a library."""
    vgpu = agent_node.folder / "host/usr/local/vgpu"
    vgpu.mkdir(parents=True)
    for name in ("libvgpu.so", "ld.so.preload"):
        (vgpu / name).touch()
    return vgpu


@pytest.fixture
def serve(agent_node: AgentNode, host: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """The plugin of two T4s, until the block ends."""
    fake = FakeNvml(agent_node.folder / "nvml", "t4-pair")
    for name, value in fake.environment().items():
        monkeypatch.setenv(name, value)
    (agent_node.folder / "plugins").symlink_to(agent_node.plugin_dir)
    return lambda: plugins(agent_node.folder, sharing=RULES)


async def available(node: AgentNode, count: int) -> None:
    await node.until(lambda seen: seen["available"] == count, UNITS)


async def directories(host: Path, *uids: str) -> None:
    """Wait until there are exactly those of these pods."""
    wanted = sorted(f"{uid}_c0" for uid in uids)

    def found() -> list[str]:
        return sorted(path.name for path in (host / "containers").glob("*"))

    await until(lambda: found() == wanted, lambda: f"directories are {found()}, not {wanted}")


async def run_pod(node: AgentNode, connection: PluginConnection, name: str, units: int) -> str:
    """A pod whose container runs. Returns its UID."""
    before = node.status(UNITS)["available"]
    uid = await node.pod(name, [units], resource=UNITS)
    await available(node, before - units)
    await connection.create_container(sandbox(uid), container(uid))
    return uid


async def end(node: AgentNode, connection: PluginConnection, name: str, uid: str) -> None:
    await node.delete_pod(name)
    await connection.container_event("StopContainer", sandbox(uid), container(uid))


async def test_it_gets_limits_mounts_and_a_directory_until_it_has_ended(
    agent_node: AgentNode, runtime: FakeRuntime, host: Path, serve: Serve
) -> None:
    agent_node.start_agent(by_nri(agent_node))
    connection = await runtime.plugin()
    async with serve():
        await available(agent_node, 2 * PER_GPU)
        annotations = {SM_PERCENT_ANNOTATION: "60"}
        uid = await agent_node.pod("one", [10], resource=UNITS, annotations=annotations)
        await available(agent_node, 2 * PER_GPU - 10)
        given = await connection.create_container(sandbox(uid), container(uid))
        env = {each.key: each.value for each in given.env}
        assert (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]) == ("10240m", "60")
        assert {(mount.source, mount.destination) for mount in given.mounts} == {
            (LIBRARY, LIBRARY),
            ("/usr/local/vgpu/ld.so.preload", "/etc/ld.so.preload"),
            (f"/usr/local/vgpu/containers/{uid}_c0", "/tmp/vgpu"),
            ("/tmp/vgpulock", "/tmp/vgpulock"),
        }
        await directories(host, uid)
        # binpack: on the same GPU
        await agent_node.pod("two", [3], resource=UNITS, annotations=annotations)
        seen = await agent_node.until(lambda seen: reasons(seen) == {"two": "AllocateFailed"}, UNITS)
        assert "60 percent of the multiprocessors" in seen["waiting"][0]["message"]
        assert "40 are left" in seen["waiting"][0]["message"]
        await agent_node.delete_pod("one")
        await agent_node.until(lambda seen: seen["releasing"] == 10, UNITS)
        await directories(host, uid)
        await connection.container_event("StopContainer", sandbox(uid), container(uid))
        await directories(host, *await uids_of(agent_node, "two"))


async def uids_of(node: AgentNode, name: str) -> list[str]:
    """UID of the pod, once it holds devices."""
    seen = await node.until(lambda seen: [a["name"] for a in seen["allocations"]] == [name], UNITS)
    return [a["podUID"] for a in seen["allocations"]]


async def test_a_pod_that_ends_while_the_agent_is_killed(
    agent_node: AgentNode, runtime: FakeRuntime, host: Path, serve: Serve
) -> None:
    agent_node.start_agent(by_nri(agent_node))
    connection = await runtime.plugin()
    async with serve():
        await available(agent_node, 2 * PER_GPU)
        ended, running = [await run_pod(agent_node, connection, name, 10) for name in ("ended", "running")]
        await directories(host, ended, running)
        await agent_node.agent.stop(signal.SIGKILL)
        await agent_node.delete_pod("ended")
        runtime.pods, runtime.containers = [sandbox(running)], [container(running)]
        agent_node.start_agent(by_nri(agent_node))
        connection = await runtime.plugin()
        await directories(host, running)
    # the plugin's own restart
    async with serve():
        await available(agent_node, 2 * PER_GPU - 10)
        later = await run_pod(agent_node, connection, "later", 10)
        await end(agent_node, connection, "later", later)
        await directories(host, running)
        await end(agent_node, connection, "running", running)
        await directories(host)
