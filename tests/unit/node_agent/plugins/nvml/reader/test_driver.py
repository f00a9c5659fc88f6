"""What each answer of NVML becomes: a GPU's description, a reading, a problem of the driver, or a GPU without that feature."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.driver import SWITCH, Driver, GpuLost, GpuUnidentified, Handle

from tests.fakes.nvml_answers import BUS, LOST, MIG_MODE, NOT_TEXT, UNKNOWN, UUID, WITHOUT, NvmlAnswers
from tests.fakes.sysfs import PCI, FakeSysfs


class TestDescribe:
    def test_all_that_the_driver_reports(self, nvml: NvmlAnswers, tmp_path: Path) -> None:
        device = tmp_path / "sys/bus/pci/devices" / BUS
        device.mkdir(parents=True)
        (device / "numa_node").write_text("1\n")
        found = Driver(str(tmp_path)).describe(2)
        assert found.nvml == "h0"
        assert found.total_bytes == 1000
        assert found.gpu == Gpu("GPU-a", "NVIDIA T4", 900, BUS, 1, 5, index=2)

    @pytest.mark.parametrize("function", [("nvmlDeviceGetHandleByIndex", 2), UUID])
    @pytest.mark.parametrize("number", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND])
    def test_a_lost_gpu_is_no_unidentified_one(self, nvml: NvmlAnswers, function: Any, number: int) -> None:
        nvml.answers[function] = pynvml.NVMLError(number)
        with pytest.raises(GpuLost):
            Driver("/nowhere").describe(2)

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION), "the NVIDIA driver denies access"),
            (NOT_TEXT, "its UUID is not text"),
            ("a/b", "its UUID is 'a/b'"),
            ("/" * 200, f"its UUID is {'/' * 128!r}"),
        ],
    )
    def test_why_a_uuid_is_of_no_use(self, nvml: NvmlAnswers, answer: Any, text: str) -> None:
        nvml.answers[UUID] = answer
        with pytest.raises(GpuUnidentified) as found:
            Driver("/nowhere").describe(2)
        assert str(found.value).startswith(text)
        assert len(str(found.value)) < 200

    @pytest.mark.parametrize(
        ("second", "first", "total", "usable"),
        [
            (SimpleNamespace(total=1000, reserved=100), None, 1000, 900),
            (SimpleNamespace(total=1000, reserved=2000), None, 1000, 0),
            (WITHOUT, SimpleNamespace(total=800), 800, 800),
            (WITHOUT, WITHOUT, None, None),
        ],
    )
    def test_its_memory(
        self, nvml: NvmlAnswers, second: Any, first: Any, total: int | None, usable: int | None
    ) -> None:
        nvml.answers["nvmlDeviceGetMemoryInfo", "h0", pynvml.nvmlMemory_v2] = second
        nvml.answers["nvmlDeviceGetMemoryInfo", "h0"] = first
        found = Driver("/nowhere").describe(2)
        assert (found.total_bytes, found.gpu.memory_bytes) == (total, usable)

    @pytest.mark.parametrize(
        ("sysfs", "words", "node"),
        [
            ("3\n", [1], 3),
            ("0\n", None, 0),
            ("-1\n", [4], None),
            (None, [0, 0], None),
            (None, [0, 1], 64),
            (None, None, None),
        ],
    )
    def test_its_numa_node(
        self, nvml: NvmlAnswers, tmp_path: Path, sysfs: str | None, words: list[int] | None, node: int | None
    ) -> None:
        if sysfs is not None:
            device = tmp_path / "sys/bus/pci/devices" / BUS
            device.mkdir(parents=True)
            (device / "numa_node").write_text(sysfs)
        if words is not None:
            nvml.answers["nvmlDeviceGetMemoryAffinity", "h0", 16, pynvml.NVML_AFFINITY_SCOPE_NODE] = words
        assert Driver(str(tmp_path)).describe(2).gpu.numa_node == node


def profile(device: str, uuid: str, place: int) -> dict[tuple[Any, ...], Any]:
    attributes = SimpleNamespace(
        gpuInstanceSliceCount=1,
        computeInstanceSliceCount=1,
        memorySizeMB=0,
        sharedDecoderCount=0,
        sharedEncoderCount=0,
        sharedJpegCount=0,
        sharedOfaCount=0,
    )
    return {
        ("nvmlDeviceGetMigDeviceHandleByIndex", "h0", place): device,
        ("nvmlDeviceGetAttributes_v2", device): attributes,
        ("nvmlDeviceGetUUID", device): uuid,
        ("nvmlDeviceGetGpuInstanceId", device): 7,
        ("nvmlDeviceGetComputeInstanceId", device): 0,
    }


class TestInstances:
    ONE = MigInstance("MIG-0", "1g.0gb", 7, 0, 0)
    KNOWN = (MigInstance("MIG-k", "1g.5gb", 1, 0, 4864),)

    @pytest.mark.parametrize(
        ("answers", "before", "after"),
        [
            pytest.param({}, KNOWN, KNOWN, id="no MIG mode known"),
            pytest.param({MIG_MODE: [0, 1]}, KNOWN, None, id="not in MIG mode"),
            pytest.param({MIG_MODE: [1, 0]}, KNOWN, (), id="no instances possible"),
            pytest.param(
                {MIG_MODE: [1, 0], ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 1, **profile("m", "MIG-0", 0)},
                None,
                (ONE,),
                id="one",
            ),
            pytest.param(
                {
                    MIG_MODE: [1, 0],
                    ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 1,
                    "nvmlDeviceGetMigDeviceHandleByIndex": UNKNOWN,
                },
                KNOWN,
                KNOWN,
                id="cannot be read",
            ),
            pytest.param(
                {
                    MIG_MODE: [1, 0],
                    ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 1,
                    "nvmlDeviceGetMigDeviceHandleByIndex": NOT_TEXT,
                },
                None,
                (),
                id="never read",
            ),
        ],
    )
    def test_as_last_read(
        self, nvml: NvmlAnswers, answers: Mapping[Any, Any], before: Any, after: tuple[MigInstance, ...] | None
    ) -> None:
        nvml.answers |= answers
        handle = Handle("h0", Gpu("GPU-a", instances=before))
        Driver("/nowhere").reading(handle)
        assert handle.gpu.instances == after

    def test_their_number_is_bounded(self, nvml: NvmlAnswers, handle: Handle) -> None:
        nvml.answers |= {MIG_MODE: [1, 0], ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 1 << 30}
        nvml.answers["nvmlDeviceGetMigDeviceHandleByIndex"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        Driver("/nowhere").reading(handle)
        assert nvml.count("nvmlDeviceGetMigDeviceHandleByIndex") == 64

    def test_the_profiles_of_one_model_are_not_anothers(self, nvml: NvmlAnswers) -> None:
        nvml.answers |= {MIG_MODE: [1, 0], ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 1, **profile("m", "MIG-0", 0)}
        here, one, other = Driver("/nowhere"), Handle("h0", Gpu("GPU-a", "A")), Handle("h0", Gpu("GPU-a", "B"))
        shape = SimpleNamespace(sliceCount=1, decoderCount=0, encoderCount=0, jpegCount=0, ofaCount=0)
        with_engines = pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1
        nvml.answers["nvmlDeviceGetGpuInstanceProfileInfo", "h0", with_engines, 1] = shape
        here.reading(one)
        del nvml.answers["nvmlDeviceGetGpuInstanceProfileInfo", "h0", with_engines, 1]
        here.reading(other)
        profiles = [each.profile for handle in (one, other) for each in handle.gpu.instances or ()]
        assert profiles == ["1g.0gb+me", "1g.0gb"]


@pytest.mark.parametrize(
    ("vendor", "kind", "sees"),
    [
        ("10de", "068000", True),
        ("10de", "030200", False),
        ("8086", "068000", False),
        ("", "068000", False),
        ("10de", "", False),
    ],
)
def test_switches_on_the_bus(tmp_path: Path, vendor: str, kind: str, sees: bool) -> None:
    assert not Driver(str(tmp_path)).sees_switches()
    FakeSysfs(tmp_path).pci(f"{PCI}/{BUS}", vendor, its_class=kind)
    assert Driver(str(tmp_path)).sees_switches() is sees


UP, DOWN = pynvml.NVML_FEATURE_ENABLED, pynvml.NVML_FEATURE_DISABLED


@pytest.mark.parametrize(
    ("state", "remote", "kind", "end"),
    [
        pytest.param(UP, "00000000:2B:00.0", 2, "GPU-b", id="a GPU"),
        pytest.param(UP, "00000000:2B:00.0", WITHOUT, "GPU-b", id="a GPU, of an older driver"),
        pytest.param(UP, "00000000:1B:00.0", 2, SWITCH, id="itself is a switch"),
        pytest.param(UP, "00000000:FF:00.0", 2, SWITCH, id="a switch"),
        pytest.param(UP, None, 2, SWITCH, id="a switch without a bus ID"),
        pytest.param(UP, "00000000:FF:00.0", WITHOUT, SWITCH, id="a switch, of an older driver"),
        pytest.param(UP, "00000000:FF:00.0", 1, "", id="a processor"),
        pytest.param(DOWN, "00000000:2B:00.0", 2, "", id="a link that is down"),
        pytest.param(UNKNOWN, "00000000:2B:00.0", 2, "", id="a link that cannot be asked"),
    ],
)
def test_the_other_end_of_a_link(
    nvml: NvmlAnswers, handle: Handle, state: Any, remote: str | None, kind: Any, end: str
) -> None:
    nvml.answers |= {
        ("nvmlDeviceGetNvLinkState", "h0", 3): state,
        ("nvmlDeviceGetNvLinkRemoteDeviceType", "h0", 3): kind,
    }
    if remote is not None:
        nvml.answers["nvmlDeviceGetNvLinkRemotePciInfo", "h0", 3] = SimpleNamespace(busId=remote)
    by_bus_id = {BUS: "GPU-a", "0000:2b:00.0": "GPU-b"}
    assert Driver("/nowhere").link_end(handle, 3, by_bus_id) == end


@pytest.mark.parametrize(("answer", "level"), [(10, Ancestor.SWITCH), (11, None), (UNKNOWN, None), (LOST, None)])
def test_the_ancestor_of_two(nvml: NvmlAnswers, handle: Handle, answer: Any, level: Ancestor | None) -> None:
    nvml.answers["nvmlDeviceGetTopologyCommonAncestor", "h0", "h1"] = answer
    assert Driver("/nowhere").ancestor(handle, Handle("h1", Gpu("GPU-b"))) is level
