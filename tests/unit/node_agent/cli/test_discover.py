"""`nodedevice-agent discover` as a command: where it looks, what it says of what it cannot see, and how it fails."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from nodedevice_agent.cli import discover as command
from nodedevice_agent.cli.discover import discover
from nodedevice_agent.configs.watch import FILE_NAME
from nodedevice_agent.plugins.nvml import discover as nvml
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import MigInstance

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.discovery.hosts import GPU, pci, stick
from tests.unit.node_agent.plugins.discovery.test_discover import NO_DRIVER, found, run
from tests.unit.node_agent.plugins.discovery.test_discover import _no_nvidia as _no_nvidia
from tests.unit.node_agent.plugins.discovery.test_discover import host as host

T4, A2 = "NVIDIA T4", "NVIDIA A2"
SHARED = {"indexes": [1], "shares": {"replicas": 2, "resourceName": "a.com/share"}}
INSTANCE, MIG_NAME = MigInstance("MIG-a", "1g.10gb", 1, 0, 9728), "nvidia.com/mig-1g.10gb"


def notes(host: FakeSysfs, plugins: dict[str, Any] | None = None) -> list[str]:
    said: list[str] = json.loads(run(host, "-o", "json", plugins=plugins).output)["notes"]
    return said


def gpus_are(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, why_none: str = "") -> None:
    """As the driver reports them."""

    async def answer(*_: object) -> tuple[tuple[Gpu, ...], str]:
        return gpus, why_none

    monkeypatch.setattr(nvml, "nvidia_gpus", answer)


@pytest.mark.parametrize("output", [(), ("-o", "json")])
def test_what_cannot_be_read_at_all_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
) -> None:
    def refuse(root: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/sys")

    monkeypatch.setattr(command, "hardware", refuse)
    result = CliRunner().invoke(discover, ["--state-dir", str(tmp_path), *output])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: cannot read this node's devices: [Errno 5] Input/output error: '/sys'\n"


@pytest.mark.parametrize(
    ("vendor", "plugins", "why_none", "is_noted"),
    [
        pytest.param("10de", {}, NO_DRIVER, True, id="a GPU of NVIDIA's"),
        pytest.param("1002", {"nvml": {}}, NO_DRIVER, True, id="the plugin is on"),
        pytest.param("1002", {}, NO_DRIVER, False, id="neither"),
        pytest.param("10de", {"nvml": {}}, "", False, id="both, and it answers"),
    ],
)
def test_why_the_driver_lists_no_gpu_is_said_where_one_is_expected(
    host: FakeSysfs,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    plugins: dict[str, Any],
    why_none: str,
    is_noted: bool,
) -> None:
    pci(host, GPU, vendor, "1234")
    gpus_are(monkeypatch, why_none=why_none)
    assert notes(host, plugins) == ([why_none] if is_noted else [])


@pytest.mark.parametrize(
    ("settings", "gpu", "names"),
    [
        pytest.param({}, Gpu("GPU-a", T4), ["nvidia.com/gpu"], id="whole"),
        pytest.param({"modelResourceNames": {"*A2": "a.com/a2"}}, Gpu("GPU-a", T4), ["nvidia.com/gpu"], id="another's"),
        pytest.param({"modelResourceNames": {"*A2": "a.com/a2"}}, Gpu("GPU-a", A2), ["a.com/a2"], id="its model's"),
        pytest.param({"sharing": [SHARED]}, Gpu("GPU-a", T4, index=1), ["a.com/share"], id="shares"),
        pytest.param({"mig": "mixed"}, Gpu("GPU-a", T4, instances=(INSTANCE,)), [MIG_NAME], id="instances"),
    ],
)
def test_a_gpu_is_offered_as_what_its_settings_make_of_it(
    host: FakeSysfs, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], gpu: Gpu, names: list[str]
) -> None:
    gpus_are(monkeypatch, gpu)
    assert [each["offeredAs"] for each in found(host, {"nvml": settings})] == [names]


@pytest.mark.parametrize(
    ("may_enter", "has_file", "may_read", "is_noted"),
    [
        pytest.param(False, False, False, True, id="a directory of another user"),
        pytest.param(True, False, False, False, id="no file"),
        pytest.param(True, True, True, False, id="a file"),
        pytest.param(True, True, False, True, id="a file of another user"),
    ],
)
def test_configurations_that_this_user_may_not_read(
    host: FakeSysfs, monkeypatch: pytest.MonkeyPatch, may_enter: bool, has_file: bool, may_read: bool, is_noted: bool
) -> None:
    file = host.root.parent / FILE_NAME
    if has_file:
        file.write_text("{}")
    rights = {(file.parent, os.X_OK): may_enter, (file, os.R_OK): may_read}
    # root may read all
    monkeypatch.setattr(os, "access", lambda path, right: rights.get((Path(path), right), True))
    what = f"{file} cannot be read, so devices that NodeDeviceConfigs already offer are not marked"
    assert notes(host) == ([f"{what}: run this as the user the agent runs as"] if is_noted else [])


def document(host: FakeSysfs, **settings: Any) -> dict[str, Any]:
    """With these settings of the agent."""
    folder = host.root.parent
    every = {"stateDir": str(folder), "plugins": {"hostRoot": str(host.root)}, **settings}
    (folder / "agent.yaml").write_text(yaml.safe_dump(every))
    printed = CliRunner().invoke(discover, ["--config", str(folder / "agent.yaml"), "-o", "json"]).output
    found: dict[str, Any] = json.loads(printed)
    return found


@pytest.mark.parametrize(("allowed", "names"), [(["/dev"], ["a.com/a"]), (["/opt"], None)])
def test_a_configuration_counts_as_far_as_the_agent_lets_it(
    host: FakeSysfs, allowed: list[str], names: list[str] | None
) -> None:
    """Below which directories it may name paths is the agent's setting."""
    stick(host)
    plugins = {"generic": [{"resourceName": "a.com/a", "groups": [{"paths": [{"path": "/dev/ttyUSB0"}]}]}]}
    kept = {"configs": [{"name": "a", "generation": 1, "plugins": plugins, "keys": ["plugins"]}]}
    (host.root.parent / FILE_NAME).write_text(json.dumps(kept))
    [candidate] = document(host, allowedHostPaths=allowed)["candidates"]
    assert candidate.get("offeredAs") == names
