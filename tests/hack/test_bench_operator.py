"""`make bench-operator`: whatever ends it early, what was measured is shown; and work that is only held up is waited for."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_operator.objects.nodedevice import node_device_record
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema

from hack.bench.operator import bench, fleet
from hack.bench.operator.api import Refused
from hack.bench.operator.measured import Changes, Idle, Measured, Settled, Start, facts, results
from hack.bench.operator.settle import MOST_SECONDS, QUIET_SECONDS, settled
from hack.cluster.errors import ComponentError
from tests.fakes.virtual_time import VirtualTimeLoop

_CHANGES = Changes(1, [0.1, 0.2, 0.3], [0.05, 0.1, 0.1], [0.05, 0.1, 0.2], [0.02, 0.05], 0.4, {"operator": 0.3})
# in the order in which they are measured, with the rows that each brings
_STAGES: list[tuple[str, Any, set[str]]] = [
    ("made_seconds", 3.0, set()),
    ("bare_seconds", 50.0, set()),
    ("cold", Start(55.0), {"cold", "cold_over_bare"}),
    ("cold_settled", Settled(80.0, {"events create": 7}), set()),
    ("restart", Start(5.0), {"restart"}),
    ("restart_settled", Settled(6.0, {}), {"restart_writes"}),
    ("idle", Idle({}, {"operator": 0.01}), {"idle_writes"}),
    ("changes", _CHANGES, {"flip", "flip_over_bare"}),
    ("rss_mib", 100.0, {"rss"}),
    ("changes_settled", Settled(20.0, {"nodes/status patch": 3}), {"writes_per_change"}),
    ("crashes", [3.9], {"takeover_crash"}),
    ("clean_ends", [0.4, 0.5], {"takeover_clean"}),
]


def _until(stage: int, nodes: int = 5) -> Measured:
    """What has been measured before that stage."""
    measured = Measured(nodes)
    _fill(measured, stage)
    return measured


def _fill(measured: Measured, stage: int) -> None:
    for name, value, _ in _STAGES[:stage]:
        setattr(measured, name, value)


@pytest.mark.parametrize("stage", range(len(_STAGES) + 1))
def test_each_stage_has_its_rows_without_the_later_ones(stage: int, tmp_path: Path) -> None:
    measured = _until(stage)
    expected = {f"operator_{row}_5" for _, _, rows in _STAGES[:stage] for row in rows}
    assert set(results(measured)) == expected
    assert all(text for text in facts(measured).values())
    bench.draw(bench.charts([measured]), tmp_path)


def test_every_stage_is_in_the_list() -> None:
    named = {name for name, _, _ in _STAGES} | {"nodes", "problem", "peak_rss_mib"}
    assert named == set(Measured.__dataclass_fields__)


def test_a_cold_start_is_held_against_bare_writes_where_these_take_long() -> None:
    measured = _until(len(_STAGES))
    assert results(measured)["operator_cold_5"].ok
    measured.cold = Start(61.0)
    assert not results(measured)["operator_cold_5"].ok
    measured.bare_seconds = 100.0
    measured.cold = Start(119.0)
    assert results(measured)["operator_cold_5"].ok
    assert results(measured)["operator_cold_over_bare_5"].ok


@pytest.mark.parametrize(("changed", "is_ok"), [([0.1, 0.1], True), ([0.3, 0.3], False), ([0.1, 0.1, 5.0], False)])
def test_flips_are_held_against_bare_writes_in_the_middle_and_at_the_end(changed: list[float], is_ok: bool) -> None:
    measured = Measured(5, changes=Changes(0, changed, [], [], [0.05, 0.05], 0.1, {}))
    assert results(measured)["operator_flip_over_bare_5"].ok is is_ok


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(TimeoutError("both are ready: not so within 300 s"), id="not in time"),
        pytest.param(EOFError("the generator has ended"), id="generator"),
        pytest.param(Refused("PATCH: HTTP 500"), id="refused"),
        pytest.param(ComponentError("operator", "ended with status 1", Path("log"), ""), id="operator"),
        pytest.param(ConnectionResetError(104, "Connection reset by peer"), id="API server"),
        pytest.param(ZeroDivisionError(), id="a mistake"),
        pytest.param(KeyboardInterrupt(), id="interrupted"),
    ],
)
def test_what_was_measured_before_it_ended_is_printed(
    end: BaseException, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measure(measured: Measured, *_: object) -> None:
        _fill(measured, len(_STAGES) - 1)
        raise end

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "_BUILD", tmp_path / "build")
    monkeypatch.setattr(bench, "_ROOT", tmp_path)
    monkeypatch.setenv("BENCH_NODES", "5")
    assert bench.main() == 1
    shown = capsys.readouterr()
    assert "operator_flip_5" in shown.out
    assert "operator_takeover_crash_5" in shown.out
    assert "operator_flip_5" in (tmp_path / "build" / "bench-operator.json").read_text()
    assert "5 nodes: ended early: " in shown.err


def test_an_interrupt_ends_the_fleets_that_would_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", measure)
    assert [each.nodes for each in bench.run([5, 6], 1.0)] == [5]


def _settle(take_writes: Callable[[], Counter[str]], is_done: Callable[[], bool]) -> tuple[Settled, float]:
    """And the virtual seconds that it took."""

    async def run() -> tuple[Settled, float]:
        began = asyncio.get_running_loop().time()
        found = await settled(take_writes, is_done, began)
        return found, asyncio.get_running_loop().time() - began

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(run())


def test_a_lapse_of_the_lease_is_no_end_of_the_work() -> None:
    writes = iter([Counter(a=1)] + [Counter[str]()] * 40 + [Counter(a=2)])
    leads = iter([False, False, False, True])
    found, seconds = _settle(lambda: next(writes, Counter()), lambda: next(leads))
    assert found.writes == {"a": 3}
    assert found.seconds == pytest.approx(seconds - QUIET_SECONDS, abs=0.5)
    assert seconds > 4 * QUIET_SECONDS


@pytest.mark.parametrize(
    ("writes", "text"), [(Counter(a=1), "it writes {'a': 1}"), (Counter[str](), "does not lead, or nodes wait")]
)
def test_what_never_ends_is_named(writes: Counter[str], text: str) -> None:
    with pytest.raises(TimeoutError, match=text):
        _settle(lambda: writes, lambda: False)
    assert MOST_SECONDS > QUIET_SECONDS


def test_a_pool_of_the_fleet_is_only_shown_and_has_all_that_one_can_have() -> None:
    pods = {fleet.pod_name("n", number): fleet.Owner(f"pod-{number}", f"uid-{number}") for number in range(fleet.PODS)}
    body = fleet.pool_status("n", "gpu-0.bench.example.com/devices", pods)
    meta = {"name": "x", "uid": "u", "resourceVersion": "1"}
    spec = {"nodeName": "n", "resourceName": "gpu-0.bench.example.com/devices"}
    made = node_device_record(msgspec.convert({**body, "metadata": meta, "spec": spec}, NodeDeviceSchema))
    assert made.is_only_shown
    assert (made.total, made.allocated, made.driver) == (fleet.DEVICES, 4, "gpu-0.bench.example.com")
    assert [(each.claim, len(each.shares)) for each in made.allocations] == [
        ("pod-0-claim-gpu-0", 2),
        ("pod-1-claim-gpu-0", 2),
    ]
