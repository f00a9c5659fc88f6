"""What each answer of NVML about a GPU becomes in a reading, and what a GPU turns out not to support."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from nodedevice_agent.plugins.nvml.driver_troubles import FABRIC_COMPLETED, RESET, Fabric, Reading
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.reader import driver
from nodedevice_agent.plugins.nvml.reader.driver import Driver, Handle
from nodedevice_agent.plugins.nvml.reader.problems import DriverProblem

from tests.fakes.nvml_answers import (
    ACTION,
    ECC,
    ENERGY,
    LOST,
    MIG_MODE,
    NOT_TEXT,
    PAGES,
    RESET_REQUIRED,
    ROWS,
    UNKNOWN,
    UUID,
    WITHOUT,
    NvmlAnswers,
)


def field(value: int, error: int = pynvml.NVML_SUCCESS) -> list[Any]:
    return [SimpleNamespace(nvmlReturn=error, value=SimpleNamespace(uiVal=value))]


class TestReading:
    @pytest.mark.parametrize(
        ("answers", "reading"),
        [
            pytest.param({}, Reading(), id="nothing supported"),
            pytest.param({ECC: 4}, Reading(ecc_uncorrected=4), id="ECC errors"),
            pytest.param({ACTION: field(2)}, Reading(recovery_action=2), id="a recovery action"),
            pytest.param({ACTION: field(2, pynvml.NVML_ERROR_UNKNOWN)}, Reading(), id="a field that fails"),
            pytest.param({ACTION: UNKNOWN, ECC: 1}, Reading(ecc_uncorrected=1), id="a call that fails"),
            pytest.param({ROWS: [1, 1, 0, 0]}, Reading(), id="rows remapped"),
            pytest.param({ROWS: [0, 0, 1, 0]}, Reading(row_remap_pending=True), id="a row that waits"),
            pytest.param({ROWS: [0, 0, 0, 1]}, Reading(row_remap_failed=True), id="a row that failed"),
            pytest.param({PAGES: 1}, Reading(page_retirement_pending=True), id="a page that waits"),
            pytest.param({PAGES: 0}, Reading(), id="no page"),
            pytest.param({ENERGY: 9}, Reading(), id="energy that is not asked for"),
            pytest.param({UUID: "GPU-b"}, Reading(is_lost=True), id="another GPU"),
            pytest.param({UUID: LOST}, Reading(is_lost=True), id="lost"),
            pytest.param({ECC: LOST}, Reading(is_lost=True), id="lost meanwhile"),
            pytest.param({UUID: RESET_REQUIRED}, Reading(recovery_action=RESET), id="wants a reset"),
            pytest.param({ECC: RESET_REQUIRED}, Reading(recovery_action=RESET), id="wants a reset meanwhile"),
            pytest.param({MIG_MODE: LOST}, Reading(), id="lost before its instances"),
            pytest.param({UUID: NOT_TEXT}, Reading(failure="its UUID is not text"), id="not text"),
            pytest.param(
                {UUID: pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)},
                Reading(failure="the NVIDIA driver denies access: this process needs /dev/nvidiactl and /dev/nvidia*"),
                id="a UUID that is refused",
            ),
            pytest.param({ECC: NOT_TEXT}, Reading(), id="garbage"),
        ],
    )
    def test_of_each_answer(
        self, nvml: NvmlAnswers, handle: Handle, answers: Mapping[Any, Any], reading: Reading
    ) -> None:
        nvml.answers |= answers
        assert Driver("/nowhere").reading(handle) == reading
        assert handle.is_stale is isinstance(answers.get(UUID), str)

    @pytest.mark.parametrize("function", [UUID, ECC, ACTION, ROWS, PAGES, MIG_MODE])
    @pytest.mark.parametrize(
        "number",
        [
            pynvml.NVML_ERROR_UNINITIALIZED,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        ],
    )
    def test_a_broken_driver_is_no_reading(self, nvml: NvmlAnswers, handle: Handle, function: Any, number: int) -> None:
        nvml.answers[function] = pynvml.NVMLError(number)
        with pytest.raises(DriverProblem):
            Driver("/nowhere").reading(handle)

    @pytest.mark.parametrize(
        ("asks", "action", "energy"),
        [
            pytest.param({}, WITHOUT, None, id="later"),
            pytest.param({"with_energy": True}, WITHOUT, 9, id="when it is due"),
            pytest.param({"with_energy": True}, field(0), 9, id="when it is due, with a recovery action"),
            pytest.param({"is_first": True}, WITHOUT, 9, id="first, without a recovery action"),
            pytest.param({"is_first": True}, field(0), None, id="first, with a recovery action"),
        ],
    )
    def test_the_energy_counter_is_read_where_it_shows_a_reset(
        self, nvml: NvmlAnswers, handle: Handle, asks: dict[str, bool], action: Any, energy: int | None
    ) -> None:
        nvml.answers |= {ENERGY: 9, ACTION: action}
        assert Driver("/nowhere").reading(handle, **asks).energy_mj == energy

    @pytest.mark.parametrize("function", [UUID, ECC, ACTION, ROWS, PAGES, MIG_MODE])
    def test_the_function_that_may_hang_is_known(self, nvml: NvmlAnswers, handle: Handle, function: Any) -> None:
        here, seen = Driver("/nowhere"), []

        def noted(*_: Any) -> Any:
            seen.append((here.calling, handle.calling))
            raise LOST

        nvml.answers[function] = noted
        here.reading(handle)
        assert seen == [(function[0], function[0])]


class TestFabric:
    STARTED, READY = Fabric(1), Fabric(FABRIC_COMPLETED)

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, nvml: NvmlAnswers) -> dict[str, Any]:
        """What the two versions of the call answer."""
        answers: dict[str, Any] = {"new": WITHOUT, "old": WITHOUT}

        def asking(name: str) -> Any:
            def ask(_: Any) -> Any:
                if isinstance(answers[name], Exception):
                    raise answers[name]
                return answers[name]

            ask.__name__ = name
            return ask

        monkeypatch.setattr(driver, "ASK_FABRIC", (asking("new"), asking("old")))
        return answers

    @pytest.mark.parametrize(
        ("new", "old", "found"),
        [
            (READY, STARTED, READY),
            (WITHOUT, STARTED, STARTED),
            (WITHOUT, WITHOUT, None),
            (Fabric(pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED), STARTED, None),
        ],
    )
    @pytest.mark.parametrize("is_on_switches", [True, False])
    def test_of_a_gpu_on_switches(
        self, asked: dict[str, Any], handle: Handle, new: Any, old: Any, found: Fabric | None, is_on_switches: bool
    ) -> None:
        asked |= {"new": new, "old": old}
        handle.is_on_switches = is_on_switches
        expected = found if is_on_switches else None
        assert Driver("/nowhere").reading(handle) == Reading(fabric=expected)
        assert handle.fabric == expected

    @pytest.mark.parametrize(
        ("before", "now", "is_stale"),
        [
            (None, READY, False),
            (STARTED, READY, True),
            (READY, READY, False),
            (READY, STARTED, False),
            (STARTED, STARTED, False),
            (Fabric(FABRIC_COMPLETED, 5), READY, True),
        ],
    )
    def test_a_gpu_that_has_joined_has_links_for_a_new_session(
        self, asked: dict[str, Any], handle: Handle, before: Fabric | None, now: Fabric, is_stale: bool
    ) -> None:
        handle.is_on_switches, handle.fabric = True, before
        asked["new"] = now
        Driver("/nowhere").reading(handle)
        assert handle.is_stale is is_stale
        asked["new"] = self.STARTED
        Driver("/nowhere").reading(handle)
        # until the new session
        assert handle.is_stale is is_stale


class TestFeatures:
    @pytest.mark.parametrize(
        "number",
        [
            pynvml.NVML_ERROR_NOT_SUPPORTED,
            pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            pynvml.NVML_ERROR_INVALID_ARGUMENT,
        ],
    )
    def test_what_a_gpu_does_not_support(self, nvml: NvmlAnswers, handle: Handle, number: int) -> None:
        nvml.answers |= dict.fromkeys(
            (
                "nvmlDeviceGetMemoryInfo",
                ("nvmlDeviceGetMemoryInfo", "h0", pynvml.nvmlMemory_v2),
                ("nvmlDeviceGetMinorNumber", "h0"),
                ECC,
                ACTION,
                ENERGY,
                ROWS,
            ),
            pynvml.NVMLError(number),
        )
        here = Driver("/nowhere")
        here.describe(2)
        assert here.not_supported("GPU-a") == ["memory", "minor"]
        here.reading(handle, with_energy=True)
        assert here.not_supported("GPU-a") == ["ecc", "energy", "memory", "minor", "recoveryAction"]
        assert here.not_supported("GPU-b") == []

    def test_what_may_come_is_asked_again_and_the_rest_is_not(self, nvml: NvmlAnswers, handle: Handle) -> None:
        here, other = Driver("/nowhere"), Handle("h1", Gpu("GPU-b"))
        nvml.answers["nvmlDeviceGetUUID", "h1"] = "GPU-b"
        for _ in range(3):
            here.reading(handle)
        assert nvml.calls.count(ROWS) == 1
        assert nvml.calls.count(ECC) == 3
        here.reading(other)
        assert nvml.count(ROWS[0]) == 2
        # as after a change of the ECC mode
        assert "ecc" in here.not_supported("GPU-a")
        nvml.answers[ECC] = 0
        assert here.reading(handle) == Reading(ecc_uncorrected=0)
        assert here.not_supported("GPU-a") == ["recoveryAction"]
        assert here.not_supported("GPU-b") == ["ecc", "recoveryAction"]

    def test_what_a_gpu_lacks_in_mig_mode_is_asked_again_when_its_instances_change(
        self, nvml: NvmlAnswers, handle: Handle
    ) -> None:
        """NVML does not report row remapping of a GPU that has instances."""
        here, other = Driver("/nowhere"), Handle("h1", Gpu("GPU-b"))
        nvml.answers |= {
            MIG_MODE: (1, 1),
            ("nvmlDeviceGetMaxMigDeviceCount", "h0"): 0,
            ("nvmlDeviceGetUUID", "h1"): "GPU-b",
        }
        for each in (handle, other) * 2:
            here.reading(each)
        assert nvml.count(ROWS[0]) == 2
        nvml.answers |= {MIG_MODE: (0, 0), ROWS: [0, 0, 0, 1]}
        assert here.reading(handle).row_remap_failed
        here.reading(other)
        assert nvml.count(ROWS[0]) == 3
