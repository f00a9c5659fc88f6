"""The simulated plugin over real sockets: its devices follow a file and commands."""

from pathlib import Path

from nodedevice_agent.plugins.simulated.control import set_health, state_path

from tests.fakes.device_manager import Manager
from tests.integration.builtin_plugins.plugins import GPU


async def test_health_follows_the_state_file(served: Manager, tmp_path: Path) -> None:
    path = state_path(tmp_path, GPU)
    path.write_text("unhealthy: [gpu-1]\n")
    await served.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
    edited = tmp_path / "edited"
    edited.write_text("missing: [gpu-0]\n")
    edited.rename(path)
    await served.until_listed(GPU, ["gpu-1"])
    path.write_text("count: 3\n")
    await served.until_listed(GPU, ["gpu-0", "gpu-1", "gpu-2"])


async def test_no_flip_of_five_hundred_is_lost(served: Manager, tmp_path: Path) -> None:
    for flip in range(500):
        healthy = flip % 2 == 1
        set_health(tmp_path, GPU, "gpu-0", healthy=healthy)
        await served.until_listed(GPU, {"gpu-0": "Healthy" if healthy else "Unhealthy", "gpu-1": "Healthy"})
    # each list differs from the one before: nothing was sent twice, nothing left out
    assert len(served.lists[GPU]) == 501
