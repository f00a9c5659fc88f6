"""`nodedevice-agent gpu`: shows remembered GPUs and clears one."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nodedevice_agent.cli.plugins import commands_of
from nodedevice_agent.lib import filesystem
from nodedevice_agent.plugins.nvml import boot_memory as memory
from nodedevice_agent.plugins.nvml import driver_release
from nodedevice_agent.plugins.nvml.boot_memory import Memory
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import ECC
from nodedevice_agent.plugins.nvml.node_gpus import Remembered

WELL = Remembered(Gpu("GPU-a", "H100", pci_bus_id="0000:1b:00.0"))
MARKED = Remembered(Gpu("GPU-b", "H100", pci_bus_id="0000:43:00.0"), ECC)


def run(state_dir: Path, *arguments: str) -> Result:
    return CliRunner().invoke(commands_of("nvml"), [arguments[0], "--state-dir", str(state_dir), *arguments[1:]])


def test_show_lists_remembered_gpus(tmp_path: Path) -> None:
    Memory(tmp_path).write((WELL, MARKED))
    shown = run(tmp_path, "show").output.splitlines()
    assert shown[0].split("\t") == ["GPU-a", "0000:1b:00.0", "H100", "no mark"]
    assert "uncorrectable ECC errors" in shown[1]


def test_clear_leaves_a_request_for_the_agent(tmp_path: Path) -> None:
    Memory(tmp_path).write((MARKED,))
    for _ in range(2):
        assert run(tmp_path, "clear", "GPU-b").exit_code == 0
    assert [path.name for path in memory.clear_dir(tmp_path).iterdir()] == ["GPU-b"]


@pytest.mark.parametrize("uuid", ["GPU-x", "../../etc/passwd", ""])
def test_errors_list_the_known_gpus(tmp_path: Path, uuid: str) -> None:
    Memory(tmp_path).write((WELL,))
    refused = run(tmp_path, "clear", uuid)
    assert refused.exit_code == 1
    assert "there are: GPU-a" in refused.output


DAMAGED = {
    "empty": b"",
    "cut": b"{",
    "odd": b'{"boot_id": 7}',
    "bytes": b"\xff" * 100,
    "text": b'{"boot_id": "\xff"}',
    "nobody": json.dumps({"boot_id": "x", "gpus": [{"gpu": {"uuid": "../x"}}]}).encode(),
    "nowhere": json.dumps({"boot_id": "x", "gpus": [{"gpu": {"uuid": "GPU-a", "numa_node": 1 << 63}}]}).encode(),
    "deep": b'{"x":' + b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    path = tmp_path / "gpus/remembered.json"
    path.parent.mkdir()
    path.write_bytes(content)
    refused = run(tmp_path, "show")
    assert refused.exit_code == 1
    assert str(path) in refused.output
    # the agent logs it, goes on, and writes the file again
    store = Memory(tmp_path)
    assert store.read() == ()
    assert "GPU state file is corrupt" in caplog.text
    assert path.with_name("remembered.json.unreadable").read_bytes() == content
    store.write((WELL,))
    assert Memory(tmp_path).read() == (WELL,)


def test_another_boot_has_reset_every_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Memory(tmp_path).write((MARKED,))
    assert Memory(tmp_path).read() == (MARKED,)
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(filesystem, "BOOT_ID", tmp_path / "boot_id")
    assert Memory(tmp_path).read() == ()


def test_release_leaves_a_request_and_resume_withdraws_it(tmp_path: Path) -> None:
    done = run(tmp_path, "release", "--wait", "0")
    assert (done.exit_code, done.output, driver_release.is_requested(tmp_path)) == (0, "", True)
    driver_release.closed_file(tmp_path).touch()
    assert "gpu resume" in run(tmp_path, "release").output
    assert (run(tmp_path, "resume").output, driver_release.is_requested(tmp_path)) == ("", False)
    assert "not released" in run(tmp_path, "resume").output


@pytest.mark.parametrize("seconds", ["0.2", "nan"])
def test_release_without_an_agent_fails_and_the_request_stays(tmp_path: Path, seconds: str) -> None:
    refused = run(tmp_path, "release", "--wait", seconds)
    assert refused.exit_code == 1
    assert f"the agent has not confirmed within {seconds} s" in refused.output
    assert driver_release.is_requested(tmp_path)


@pytest.mark.parametrize("command", ["release", "resume"])
@pytest.mark.parametrize("in_place", ["gpus", "gpus/released"])
def test_errors_of_the_driver_commands_name_the_file(tmp_path: Path, command: str, in_place: str) -> None:
    """A file in place of the folder, or a folder in place of the file."""
    (tmp_path / in_place).parent.mkdir(exist_ok=True)
    (tmp_path / in_place).touch() if in_place == "gpus" else (tmp_path / in_place).mkdir()
    refused = run(tmp_path, command)
    assert (refused.exit_code, "Traceback" in refused.output) == (1, False)
    assert str(tmp_path / "gpus") in refused.output
