"""How an administrator types a command of the agent that a message names: with the GPU in it, and where the program runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_agent.lib import own_command
from nodedevice_agent.plugins.nvml import health
from nodedevice_agent.plugins.nvml.devices import device_of
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.health import GpuHealth, HealthRules
from nodedevice_agent.plugins.nvml.host_files import on_host

UUID = "GPU-5d4a024a-f4bf-512b-ab91-737576f76795"
IN_POD = f"kubectl exec --namespace devices nodedevice-agent-x7k2p -- nodedevice-agent gpu clear {UUID}"


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    own_command.typed.cache_clear()
    yield
    own_command.typed.cache_clear()


def in_pod(monkeypatch: pytest.MonkeyPatch, folder: Path, namespace: bytes = b"devices\n") -> None:
    (folder / "namespace").write_bytes(namespace)
    monkeypatch.setattr(own_command, "_NAMESPACE", folder / "namespace")
    monkeypatch.setenv("HOSTNAME", "nodedevice-agent-x7k2p")


XID = health.with_xid(GpuHealth(), 79, HealthRules()).trouble
CLEARED = [XID, health.ECC, health.ECC_BEFORE, health.GONE]


@pytest.mark.parametrize("trouble", CLEARED, ids=lambda each: str(each.reason))
def test_in_a_pod_it_is_typed_by_kubectl(trouble: Trouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    in_pod(monkeypatch, tmp_path)
    gpu = Gpu(UUID)
    message = device_of(gpu, trouble, on_host(str(tmp_path), [GpuDevice(gpu)], {}, hands_over_files=False)).message
    assert message.endswith(IN_POD)
    assert len(message) <= 1024


@pytest.mark.parametrize("trouble", CLEARED, ids=lambda each: str(each.reason))
def test_elsewhere_it_is_the_programs_name(trouble: Trouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(own_command, "_NAMESPACE", tmp_path / "none")
    gpu = Gpu(UUID)
    message = device_of(gpu, trouble, on_host(str(tmp_path), [GpuDevice(gpu)], {}, hands_over_files=False)).message
    assert message.endswith(f": nodedevice-agent gpu clear {UUID}")


def test_where_the_pod_has_no_host_name_it_is_the_programs_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_pod(monkeypatch, tmp_path)
    monkeypatch.delenv("HOSTNAME")
    assert own_command.typed() == "nodedevice-agent"


@pytest.mark.parametrize("namespace", [b"", b"\xff\xfe"])
def test_a_namespace_that_cannot_be_read_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, namespace: bytes
) -> None:
    in_pod(monkeypatch, tmp_path, namespace)
    assert own_command.typed() == "nodedevice-agent"
