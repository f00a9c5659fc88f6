"""The simulated plugin over real sockets: its devices follow a file and commands."""

import logging
import os
from pathlib import Path
from typing import Any, cast

import pytest
from nodedevice_agent.plugins.simulated.control import set_health, set_missing, show, state_path

from tests.fakes.device_manager import Manager
from tests.integration.builtin_plugins.plugins import GPU, asking_for


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


async def test_an_invalid_edit_changes_nothing_and_is_logged_once(
    served: Manager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = state_path(tmp_path, GPU)
    set_health(tmp_path, GPU, "gpu-1", healthy=False)
    await served.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
    path.write_text("unhealthy: [gpu-0\n")
    path.write_text("unhealthy: [gpu-0\n")
    path.write_text("unhealthy: []\n")
    await served.until_listed(GPU, ["gpu-0", "gpu-1"])
    path.write_text("unhealthy: [gpu-0\n")
    os.utime(path)
    (path.parent / "unrelated").write_text("")
    set_path = tmp_path / "good"
    set_path.write_text("missing: [gpu-0]\n")
    set_path.rename(path)
    await served.until_listed(GPU, ["gpu-1"])
    assert {"gpu-0": "Unhealthy"} not in [{d.ID: d.health for d in devices} for devices in served.lists[GPU]]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert all(str(path) in cast("Any", record).error for record in errors)
    assert len(errors) <= 2, "one line for each broken edit"


async def test_commands_break_recover_remove_and_return(served: Manager, tmp_path: Path) -> None:
    set_health(tmp_path, GPU, "gpu-0", healthy=False)
    await served.until_listed(GPU, {"gpu-0": "Unhealthy", "gpu-1": "Healthy"})
    set_missing(tmp_path, GPU, "gpu-1", missing=True)
    await served.until_listed(GPU, {"gpu-0": "Unhealthy"})
    assert show(tmp_path, GPU) == {"gpu-0": "unhealthy", "gpu-1": "missing"}
    set_missing(tmp_path, GPU, "gpu-1", missing=False)
    set_health(tmp_path, GPU, "gpu-0", healthy=True)
    await served.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_no_flip_of_five_hundred_is_lost(served: Manager, tmp_path: Path) -> None:
    for flip in range(500):
        healthy = flip % 2 == 1
        set_health(tmp_path, GPU, "gpu-0", healthy=healthy)
        await served.until_listed(GPU, {"gpu-0": "Healthy" if healthy else "Unhealthy", "gpu-1": "Healthy"})
    # each list differs from the one before: nothing was sent twice, nothing left out
    assert len(served.lists[GPU]) == 501


async def test_allocate_passes_the_simulated_devices_to_the_container(served: Manager) -> None:
    (answer,) = (await served.dial(GPU).Allocate(asking_for(["gpu-1", "gpu-0"]))).container_responses
    assert dict(answer.envs) == {"EXAMPLE_COM_GPU": "gpu-0,gpu-1"}
    assert dict(answer.annotations) == {GPU: "gpu-0,gpu-1"}
