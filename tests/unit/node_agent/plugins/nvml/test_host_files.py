"""Which device files GPUs and their instances need, and whether the host has them."""

from pathlib import Path

import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu, GpuDevice
from nodedevice_agent.plugins.nvml.host_files import have_files
from nodedevice_agent.plugins.nvml.mig import MigInstance

from tests.unit.node_agent.plugins.nvml.sources import device_file, place

CONTROL, CAPS = "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap"
WHOLE, UNNUMBERED = GpuDevice(Gpu("GPU-1", minor=1)), GpuDevice(Gpu("GPU-x"))
# of GPU 3, whose capabilities are 20 to 22, and of GPU 4, which has none
MINORS = {"gpu3/gi1/access": 20, "gpu3/gi1/ci0/access": 21, "gpu3/gi1/ci1/access": 22}
OF_3, OF_4, OF_UNNUMBERED = (
    GpuDevice(gpu, MigInstance("MIG-a", "1g.10gb", 1, 0, 9728))
    for gpu in (Gpu("GPU-3", minor=3), Gpu("GPU-4", minor=4), UNNUMBERED.gpu)
)


@pytest.mark.parametrize(
    ("files", "devices", "have"),
    [
        pytest.param([CONTROL], [WHOLE], True, id="the driver is seen: they will be there"),
        pytest.param([CONTROL], [WHOLE, UNNUMBERED], False, id="one without a number"),
        pytest.param([CONTROL], [OF_3], True, id="those of an instance will be, too"),
        pytest.param([CONTROL], [OF_UNNUMBERED], False, id="an instance of one without a number"),
        pytest.param([CONTROL], [OF_3, OF_4], False, id="an instance without a capability"),
        pytest.param([CONTROL], [OF_4, OF_3], False, id="before one that has"),
        pytest.param(["/dev/nvidia1"], [WHOLE], True, id="all are there"),
        pytest.param([], [WHOLE], False, id="nothing is seen"),
        pytest.param(["/dev/nvidia3", f"{CAPS}20", f"{CAPS}21"], [OF_3], True, id="all of an instance"),
        pytest.param(["/dev/nvidia3", f"{CAPS}20"], [OF_3], False, id="not its own"),
        pytest.param([f"{CAPS}20", f"{CAPS}21"], [OF_3], False, id="not its GPU's"),
    ],
)
def test_whether_the_files_are_there(tmp_path: Path, files: list[str], devices: list[GpuDevice], have: bool) -> None:
    for path in files:
        device_file(tmp_path, path)
    assert have_files(str(tmp_path), devices, MINORS) is have


@pytest.mark.parametrize("path", [CONTROL, "/dev/nvidia1"])
def test_the_kernels_memory_is_no_file_of_the_driver(tmp_path: Path, path: str) -> None:
    """As tests have it, where a container is given the link by its path."""
    place(tmp_path, path).symlink_to("/dev/null")
    assert not have_files(str(tmp_path), [WHOLE], {})
