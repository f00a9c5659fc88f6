"""What each response of NVML becomes: a GPU's description, a problem of the driver, or a GPU without that feature."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.plugins.nvml.gpu import Ancestor
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.driver import SWITCH, Driver, GpuLost, GpuUnidentified

from tests.fakes.loaded_nvml import BUS_IDS, MEMORY_MIB, RESERVED_MIB, LoadedNvml, h100
from tests.fakes.sysfs import PCI, FakeSysfs
from tests.unit.node_agent.plugins.nvml.sources import place

Instances = tuple[MigInstance, ...] | None


def on_the_bus(root: Path, numa_node: str) -> None:
    place(root, f"sys/bus/pci/devices/{BUS_IDS[0]}/numa_node").write_text(f"{numa_node}\n")


class TestDescribe:
    def test_all_that_the_driver_reports(self, nvml: LoadedNvml, tmp_path: Path) -> None:
        nvml.describe("c", "b", "a")
        nvml.write("set 2 minor=5 pci=00000000:1B:00.0")
        on_the_bus(tmp_path, "1")
        found = nvml.driver(tmp_path).describe(2)
        assert found.total_bytes == MEMORY_MIB << 20
        assert found.gpu == replace(h100("a"), numa_node=1, minor=5, index=2)

    @pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"])
    @pytest.mark.parametrize("error", ["GPU_IS_LOST", "NOT_FOUND"])
    def test_a_lost_gpu_is_no_unidentified_one(self, nvml: LoadedNvml, function: str, error: str) -> None:
        nvml.break_function(0, function, error)
        with pytest.raises(GpuLost):
            nvml.driver().describe(0)

    @pytest.mark.parametrize(
        ("statement", "text"),
        [
            (b"break 0 nvmlDeviceGetUUID NO_PERMISSION", "the NVIDIA driver denies access"),
            (b"set 0 uuid=\xff", "its UUID is not text"),
            (b"set 0 uuid=a/b", "its UUID is 'a/b'"),
        ],
    )
    def test_why_a_uuid_is_of_no_use(self, nvml: LoadedNvml, statement: bytes, text: str) -> None:
        nvml.write(statement)
        with pytest.raises(GpuUnidentified) as found:
            nvml.driver().describe(0)
        assert str(found.value).startswith(text)

    def test_a_name_that_is_not_text_is_left_out(self, nvml: LoadedNvml) -> None:
        nvml.write(b"set 0 name=\xff", b"driver \xff")
        driver = Driver("/nowhere", str(nvml.library_dir))
        assert driver.open() == ""
        assert driver.describe(0).gpu == replace(h100("a"), model="")

    @pytest.mark.parametrize(
        ("statement", "total", "usable"),
        [
            ("", MEMORY_MIB, MEMORY_MIB - RESERVED_MIB),
            ("set 0 reserved=100GiB", MEMORY_MIB, 0),
            ("break 0 nvmlDeviceGetMemoryInfo_v2 NOT_SUPPORTED", MEMORY_MIB, MEMORY_MIB),
            ("break 0 nvmlDeviceGetMemoryInfo NOT_SUPPORTED", None, None),
        ],
    )
    def test_its_memory(self, nvml: LoadedNvml, statement: str, total: int | None, usable: int | None) -> None:
        nvml.write(statement)
        found = nvml.driver().describe(0)
        expected = tuple(mib if mib is None else mib << 20 for mib in (total, usable))
        assert (found.total_bytes, found.gpu.memory_bytes) == expected

    @pytest.mark.parametrize(
        ("sysfs", "of_nvml", "node"), [("3", 0, 3), ("0", -1, 0), ("-1", 2, None), (None, 64, 64), (None, -1, None)]
    )
    def test_numa(self, nvml: LoadedNvml, tmp_path: Path, sysfs: str | None, of_nvml: int, node: int | None) -> None:
        if sysfs is not None:
            on_the_bus(tmp_path, sysfs)
        nvml.set(0, numa=of_nvml)
        assert nvml.driver(tmp_path).describe(0).gpu.numa_node == node

    def test_a_mask_of_no_numa_node(self, nvml: LoadedNvml) -> None:
        nvml.replace("nvmlDeviceGetMemoryAffinity", lambda handle, words, scope: [0] * words)
        assert nvml.driver().describe(0).gpu.numa_node is None


class TestInstances:
    ONE = MigInstance("MIG-0", "1g.10gb", 7, 0, 9984)
    KNOWN = (MigInstance("MIG-k", "1g.5gb", 1, 0, 4864),)
    ENABLED = b"set 0 mig=enabled"

    @pytest.mark.parametrize(
        ("statements", "before", "after"),
        [
            pytest.param([b"set 0 mig=unsupported"], KNOWN, KNOWN, id="no MIG mode known"),
            pytest.param([], KNOWN, None, id="not in MIG mode"),
            pytest.param([ENABLED], KNOWN, (), id="no instances"),
            pytest.param([ENABLED, b"break 0 nvmlDeviceGetMaxMigDeviceCount UNKNOWN"], KNOWN, (), id="none possible"),
            pytest.param([ENABLED, b"create 0 1g.10gb uuid=MIG-0"], None, (ONE,), id="one"),
            pytest.param([ENABLED, b"break 0 nvmlDeviceGetMigDeviceHandleByIndex UNKNOWN"], KNOWN, KNOWN, id="unread"),
            pytest.param([ENABLED, b"create 0 1g.10gb uuid=MIG-\xff"], None, (), id="never read"),
            pytest.param([ENABLED, b"create 0 1g.10gb uuid=a/b"], None, (), id="not a UUID"),
        ],
    )
    def test_as_last_read(self, nvml: LoadedNvml, statements: list[bytes], before: Instances, after: Instances) -> None:
        driver = nvml.driver()
        handle = driver.describe(0)
        handle.gpu = replace(handle.gpu, instances=before)
        nvml.write(*statements)
        driver.reading(handle)
        assert handle.gpu.instances == after

    def test_their_number_is_bounded(self, nvml: LoadedNvml) -> None:
        nvml.mig(0, "enabled")
        nvml.replace("nvmlDeviceGetMaxMigDeviceCount", lambda handle: 1 << 30)
        nvml.driver().describe(0)
        assert nvml.count("nvmlDeviceGetMigDeviceHandleByIndex") == 64

    def test_the_profiles_of_one_model_are_not_anothers(self, nvml: LoadedNvml) -> None:
        nvml.write(
            "set 0 mig=enabled",
            "create 0 1g.10gb+me",
            # with the engines that the H100 has for this other profile alone
            f"model b name=B memory={MEMORY_MIB}MiB mig=enabled",
            "profile b 1g.10gb 0 19 1 7 1 7 16 1 1 0 1 1 9984",
            "profile b 1g.10gb+me 7 20 1 7 1 1 16 1 1 0 1 1 9984",
            f"gpu b uuid=GPU-b pci={BUS_IDS[1]}",
            "create 1 1g.10gb",
        )
        driver = nvml.driver()
        profiles = [each.profile for place in (0, 1) for each in driver.describe(place).gpu.instances or ()]
        assert profiles == ["1g.10gb+me", "1g.10gb"]


@pytest.mark.parametrize(
    ("vendor", "kind", "sees"),
    [("10de", "068000", True), ("10de", "030200", False), ("8086", "068000", False), ("10de", "", False)],
)
def test_switches_on_the_bus(tmp_path: Path, vendor: str, kind: str, sees: bool) -> None:
    assert not Driver(str(tmp_path)).sees_switches()
    FakeSysfs(tmp_path).pci(f"{PCI}/{BUS_IDS[0]}", vendor, its_class=kind)
    assert Driver(str(tmp_path)).sees_switches() is sees


LINK, OTHER_SWITCH = "link 0 1", "switch 00000000:FF:00.0 0"
OLDER = "break 0 nvmlDeviceGetNvLinkRemoteDeviceType FUNCTION_NOT_FOUND"
UNPLACED = "break 0 nvmlDeviceGetNvLinkRemotePciInfo NOT_SUPPORTED"


@pytest.mark.parametrize(
    ("statements", "end"),
    [
        pytest.param([LINK], "GPU-b", id="a GPU"),
        pytest.param([LINK, OLDER], "GPU-b", id="a GPU, of an older driver"),
        pytest.param([f"switch 0000{BUS_IDS[0]} 0"], SWITCH, id="itself is a switch"),
        pytest.param([OTHER_SWITCH], SWITCH, id="a switch"),
        pytest.param([OTHER_SWITCH, UNPLACED], SWITCH, id="a switch without a bus ID"),
        pytest.param([OTHER_SWITCH, OLDER], SWITCH, id="a switch, of an older driver"),
        pytest.param(["link 0 2"], "", id="neither a known GPU nor a switch"),
        pytest.param([LINK, "nvlink 0 0 down"], "", id="a link that is down"),
        pytest.param([LINK, "break 0 nvmlDeviceGetNvLinkState UNKNOWN"], "", id="a link that cannot be asked"),
    ],
)
def test_the_other_end_of_a_link(nvml: LoadedNvml, statements: list[str], end: str) -> None:
    nvml.describe("a", "b", "c")
    nvml.write(*statements)
    driver = nvml.driver()
    by_bus_id = {BUS_IDS[0]: "GPU-a", BUS_IDS[1]: "GPU-b"}
    handle = driver.describe(0)
    assert [driver.link_end(handle, link, by_bus_id) for link in (0, 1)] == [end, ""]


class TestAncestor:
    FUNCTION = "nvmlDeviceGetTopologyCommonAncestor"

    @pytest.mark.parametrize(
        ("statement", "level"),
        [
            ("", Ancestor.SWITCH),
            ("set 0 numa=1", Ancestor.SYSTEM),
            (f"break 0 {FUNCTION} UNKNOWN", None),
            (f"break 0 {FUNCTION} GPU_IS_LOST", None),
        ],
    )
    def test_of_two(self, nvml: LoadedNvml, statement: str, level: Ancestor | None) -> None:
        nvml.describe("a", "b")
        nvml.write(statement)
        driver = nvml.driver()
        assert driver.ancestor(driver.describe(0), driver.describe(1)) is level

    def test_a_level_that_is_not_known(self, nvml: LoadedNvml) -> None:
        nvml.replace(self.FUNCTION, lambda one, other: 11)
        driver = nvml.driver()
        assert driver.ancestor(driver.describe(0), driver.describe(0)) is None
