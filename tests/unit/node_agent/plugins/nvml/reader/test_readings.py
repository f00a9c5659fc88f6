"""What each response of NVML about a GPU becomes in a reading, and what a GPU turns out not to support."""

from typing import Any

import pynvml
import pytest
from msgspec.structs import replace
from nodedevice_agent.plugins.nvml.driver_troubles import FABRIC_COMPLETED, RESET, Fabric, Reading
from nodedevice_agent.plugins.nvml.reader.driver import Driver, Handle
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem

from tests.fakes.loaded_nvml import LoadedNvml

WELL = Reading(ecc_uncorrected=0, recovery_action=0)
UUID, ECC, ACTION, ENERGY, ROWS, PAGES, MIG_MODE = (
    f"nvmlDeviceGet{name}"
    for name in (
        *("UUID", "TotalEccErrors", "FieldValues", "TotalEnergyConsumption"),
        *("RemappedRows", "RetiredPagesPendingStatus", "MigMode"),
    )
)
# all that a reading asks for
ASKED = (UUID, ECC, ACTION, ROWS, PAGES, MIG_MODE)
WITH_PAGES = f"unsupported={ROWS}"
BARE = f"set * ecc=unsupported recovery-action=-1 mig=unsupported unsupported={ROWS},{PAGES}"


@pytest.fixture
def driver(nvml: LoadedNvml) -> Driver:
    return nvml.driver()


@pytest.fixture
def handle(driver: Driver) -> Handle:
    return driver.describe(0)


class TestReading:
    @pytest.mark.parametrize(
        ("statement", "reading"),
        [
            pytest.param("", WELL, id="all well"),
            pytest.param(BARE, Reading(), id="nothing supported"),
            pytest.param("set 0 uncorrected-volatile=4", replace(WELL, ecc_uncorrected=4), id="ECC"),
            pytest.param("set 0 recovery-action=2", replace(WELL, recovery_action=2), id="an action"),
            pytest.param(f"break 0 {ACTION} UNKNOWN", Reading(ecc_uncorrected=0), id="a call that fails"),
            pytest.param("set 0 remapped-corrected=1 remapped-uncorrected=1", WELL, id="rows remapped"),
            pytest.param("set 0 remap-pending=1", replace(WELL, row_remap_pending=True), id="a row that waits"),
            pytest.param("set 0 remap-failed=1", replace(WELL, row_remap_failed=True), id="a row that failed"),
            pytest.param(
                f"set 0 {WITH_PAGES} retired-pending=1",
                replace(WELL, page_retirement_pending=True),
                id="a page that waits",
            ),
            pytest.param(f"set 0 {WITH_PAGES}", WELL, id="no page"),
            pytest.param("set 0 uuid=GPU-b", Reading(is_lost=True), id="another GPU"),
            pytest.param("lose 0", Reading(is_lost=True), id="lost"),
            pytest.param(f"break 0 {ECC} GPU_IS_LOST", Reading(is_lost=True), id="lost meanwhile"),
            pytest.param(f"break 0 {UUID} RESET_REQUIRED", Reading(recovery_action=RESET), id="wants a reset"),
            pytest.param(f"break 0 {ECC} RESET_REQUIRED", Reading(recovery_action=RESET), id="wants a reset meanwhile"),
            pytest.param(f"break 0 {MIG_MODE} GPU_IS_LOST", WELL, id="lost before its instances"),
            pytest.param(b"set 0 uuid=\xff", Reading(failure="its UUID is not text"), id="not text"),
            pytest.param(
                f"break 0 {UUID} NO_PERMISSION",
                Reading(failure="the NVIDIA driver denies access: this process needs /dev/nvidiactl and /dev/nvidia*"),
                id="a UUID that is refused",
            ),
        ],
    )
    def test_of_each_response(
        self, nvml: LoadedNvml, driver: Driver, handle: Handle, statement: str | bytes, reading: Reading
    ) -> None:
        nvml.write(statement)
        assert driver.reading(handle) == reading
        assert handle.is_stale is (statement == "set 0 uuid=GPU-b")

    def test_of_a_field_that_fails(self, nvml: LoadedNvml, driver: Driver, handle: Handle) -> None:
        real = pynvml.nvmlDeviceGetFieldValues

        def fails(*arguments: Any) -> Any:
            (value,) = real(*arguments)
            value.nvmlReturn = pynvml.NVML_ERROR_UNKNOWN
            return [value]

        nvml.replace(ACTION, fails)
        assert driver.reading(handle) == Reading(ecc_uncorrected=0)
        # it is not one that is not supported
        assert driver.not_supported("GPU-a") == []

    @pytest.mark.parametrize("function", ASKED)
    @pytest.mark.parametrize("error", ["UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH"])
    def test_a_broken_driver_is_no_reading(
        self, nvml: LoadedNvml, driver: Driver, handle: Handle, function: str, error: str
    ) -> None:
        nvml.break_function(0, function, error)
        with pytest.raises(DriverProblem):
            driver.reading(handle)

    @pytest.mark.parametrize(
        ("asks", "action", "energy"),
        [
            pytest.param({}, -1, None, id="later"),
            pytest.param({"with_energy": True}, -1, 9, id="when it is due"),
            pytest.param({"with_energy": True}, 0, 9, id="when it is due, with a recovery action"),
            pytest.param({"is_first": True}, -1, 9, id="first, without a recovery action"),
            pytest.param({"is_first": True}, 0, None, id="first, with a recovery action"),
        ],
    )
    def test_the_energy_counter_is_read_where_it_shows_a_reset(
        self, nvml: LoadedNvml, driver: Driver, handle: Handle, asks: dict[str, bool], action: int, energy: int | None
    ) -> None:
        nvml.set(0, energy_mj=9, recovery_action=action)
        assert driver.reading(handle, **asks).energy_mj == energy
        assert nvml.count(ENERGY) == (energy is not None)

    @pytest.mark.parametrize("function", ASKED)
    def test_what_may_hang_is_known(self, nvml: LoadedNvml, driver: Driver, handle: Handle, function: str) -> None:
        seen = []

        def noted(*_: Any) -> Any:
            seen.append((driver.calling, handle.calling))
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

        nvml.replace(function, noted)
        driver.reading(handle)
        assert seen == [(function, function)]


class TestFabric:
    NEW, OLD = "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"
    STARTED, READY = Fabric(1, 0, 1), Fabric(FABRIC_COMPLETED, 0, 1)

    @pytest.mark.parametrize(
        ("statements", "fabric", "asked"),
        [
            pytest.param([], READY, (3, 0), id="the newest version"),
            # a driver that lacks these versions lacks the function, and an older one has no health
            pytest.param([f"break 0 {NEW} ARGUMENT_VERSION_MISMATCH"], Fabric(3), (2, 3), id="an older driver"),
            pytest.param([f"break 0 {NEW} NOT_SUPPORTED"], Fabric(3), (2, 3), id="the oldest version"),
            pytest.param([f"break 0 {NEW} GPU_IS_LOST"], None, (3, 0), id="lost"),
            pytest.param([f"break 0 {name} NOT_SUPPORTED" for name in (NEW, OLD)], None, (2, 1), id="not supported"),
            pytest.param(["set 0 fabric-state=0"], None, (3, 0), id="no fabric"),
        ],
    )
    @pytest.mark.parametrize("is_on_switches", [True, False])
    def test_of_a_gpu_on_switches(
        self,
        nvml: LoadedNvml,
        driver: Driver,
        handle: Handle,
        statements: list[str],
        fabric: Fabric | None,
        asked: tuple[int, int],
        is_on_switches: bool,
    ) -> None:
        nvml.write("set 0 fabric-state=3", *statements)
        handle.is_on_switches = is_on_switches
        readings = [driver.reading(handle) for _ in range(3)]
        assert [each.fabric for each in readings] == [fabric if is_on_switches else None] * 3
        assert handle.fabric == readings[0].fabric
        assert all(each.is_lost is (is_on_switches and "LOST" in str(statements)) for each in readings)
        assert (nvml.count(self.NEW), nvml.count(self.OLD)) == (asked if is_on_switches else (0, 0))

    @pytest.mark.parametrize(
        ("before", "now", "is_stale"),
        [
            (None, READY, False),
            (STARTED, READY, True),
            (READY, READY, False),
            (READY, STARTED, False),
            (STARTED, STARTED, False),
            (Fabric(FABRIC_COMPLETED, 5, 1), READY, True),
        ],
    )
    def test_a_gpu_that_has_joined_has_links_for_a_new_session(
        self, nvml: LoadedNvml, driver: Driver, handle: Handle, before: Fabric | None, now: Fabric, is_stale: bool
    ) -> None:
        handle.is_on_switches, handle.fabric = True, before
        # until the new session
        for fabric in (now, self.STARTED):
            nvml.set(0, fabric_state=fabric.state, fabric_status=fabric.status)
            assert driver.reading(handle).fabric == fabric
            assert handle.is_stale is is_stale


class TestFeatures:
    @pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "INVALID_ARGUMENT"])
    def test_what_a_gpu_does_not_support(self, nvml: LoadedNvml, driver: Driver, error: str) -> None:
        for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMinorNumber", ECC, ACTION, ENERGY, ROWS):
            nvml.break_function(0, function, error)
        handle = driver.describe(0)
        assert driver.not_supported("GPU-a") == ["memory", "minor"]
        driver.reading(handle, with_energy=True)
        assert driver.not_supported("GPU-a") == ["ecc", "energy", "memory", "minor", "recoveryAction"]
        assert driver.not_supported("GPU-b") == []

    @pytest.fixture
    def two(self, nvml: LoadedNvml) -> tuple[Driver, Handle, Handle]:
        nvml.describe("a", "b")
        driver = nvml.driver()
        return driver, driver.describe(0), driver.describe(1)

    def test_only_what_may_come_is_asked_again(self, nvml: LoadedNvml, two: tuple[Driver, Handle, Handle]) -> None:
        driver, handle, other = two
        nvml.write(BARE)
        for _ in range(3):
            driver.reading(handle)
        assert (nvml.count(ROWS), nvml.count(ECC)) == (1, 3)
        driver.reading(other)
        assert nvml.count(ROWS, 1) == 1
        # as after a change of the ECC mode
        assert "ecc" in driver.not_supported("GPU-a")
        nvml.set(0, ecc="enabled")
        assert driver.reading(handle) == Reading(ecc_uncorrected=0)
        assert driver.not_supported("GPU-a") == ["recoveryAction"]
        assert driver.not_supported("GPU-b") == ["ecc", "recoveryAction"]

    def test_what_a_gpu_lacks_in_mig_mode_is_asked_again_when_its_instances_change(
        self, nvml: LoadedNvml, two: tuple[Driver, Handle, Handle]
    ) -> None:
        """NVML does not report row remapping of a GPU that has instances."""
        driver, *handles = two
        nvml.write(f"set * mig=enabled unsupported={ROWS}")
        for handle in handles * 2:
            driver.reading(handle)
        assert (nvml.count(ROWS), nvml.count(ROWS, 1)) == (1, 1)
        nvml.write("set 0 mig=disabled unsupported= remap-failed=1")
        assert driver.reading(handles[0]).row_remap_failed
        driver.reading(handles[1])
        assert (nvml.count(ROWS), nvml.count(ROWS, 1)) == (2, 1)
