"""The gate and the parts: no test is forgotten, none counts twice, and a lane that fails is never called a success."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hack.ci import __main__ as ci
from hack.ci import parts, runner, turns
from hack.ci.finished import Finished, tree_hash
from hack.ci.parts import Lane, Parts, files_below, files_of, read
from tests.cluster.build.binaries import ALL_PROGRAMS
from tests.cluster.build.pins import family_of

_ROOT = Path(__file__).parents[2]
_PARTS = read()
_ON_A_CLUSTER = re.compile(r"def test_\w+\([^)]*\b(control_plane|installed)\b")


def _places(found: Parts, root: Path) -> Counter[Path]:
    lanes = [*found.gate.lanes, *(lane for part in found.parts.values() for lane in part.lanes)]
    only = (file for path in found.only_in_everything for file in files_below(root / path))
    return Counter([*files_of(lanes, root), *only])


def test_each_file_of_tests_has_one_place() -> None:
    """In the gate, in a part, or in the list of what `make everything` alone runs."""
    places = _places(_PARTS, _ROOT)
    forgotten = [str(file) for file in sorted((_ROOT / "tests").rglob("test_*.py")) if not places[file]]
    assert not forgotten
    assert [str(file) for file, number in places.items() if number > 1] == []


def test_what_runs_again_exists() -> None:
    lanes = [_PARTS.real_node, *(lane for part in _PARTS.parts.values() for lane in part.lanes if lane.again)]
    for lane in lanes:
        for test in lane.tests:
            path, _, name = test.partition("::")
            assert (_ROOT / path).exists()
            assert f"def {name.partition('[')[0]}" in ((_ROOT / path).read_text() if name else "def "), test


def test_parts_take_turns() -> None:
    names = tuple(_PARTS.parts)
    assert {parts.turn(names, commits) for commits in range(100, 100 + len(names))} == set(names)
    assert parts.turn(names, 7) == parts.turn(names, 7 + len(names))


def test_one_lane_that_fails_is_a_failure_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """So is one without tests, one without its programs, and a target of make. Tests below such a target are counted."""
    monkeypatch.setattr(runner, "_BUILD", tmp_path)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/nowhere/at/all")
    tests = {"good": "def test_it(): pass\n", "bad": "def test_it(): assert 0, 'broken on purpose'\n", "none": ""}
    for name, text in tests.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    lanes = [Lane(name, (str(tmp_path / f"test_{name}.py"),)) for name in tests]
    lanes.append(Lane("waits", (str(tmp_path / "test_good.py"),), programs=(parts.CONTROL_PLANE,)))
    lanes.append(Lane("target", make=("no-such-target",)))
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"check:\n\t{sys.executable} -m pytest {tmp_path}/test_good.py\n")
    lanes.append(Lane("made", make=("-f", str(makefile), "check")))
    outcomes = runner.run("a trial", lanes, is_gate=True)
    assert [outcome.lane for outcome in outcomes if outcome.is_ok] == ["good", "made"]
    assert min(outcome.cpu_seconds for outcome in outcomes if outcome.is_ok) > 0
    shown = capfd.readouterr().out
    for why in ("broken on purpose", "No rule to make target", "/nowhere/at/all", "2 passed, 4 failed, 0 skipped"):
        assert why in shown


def test_lanes_name_the_programs_that_they_wait_for() -> None:
    """Each that has tests on a control plane, and what they name exists."""
    for lane in (*_PARTS.gate.lanes, _PARTS.real_node):
        assert set(lane.programs) <= {parts.CONTROL_PLANE, *ALL_PROGRAMS}, lane.name
        texts = [file.read_text() for file in files_of([lane], _ROOT)]
        on_a_cluster = [text for text in texts if _ON_A_CLUSTER.search(text)]
        assert parts.CONTROL_PLANE in lane.programs or not on_a_cluster, lane.name
    assert {lane.name for lane in _PARTS.gate.lanes if not lane.programs} == {"unit"}


def test_what_passed_on_a_tree_is_not_run_on_it_again(tmp_path: Path) -> None:
    file = tmp_path / "build" / "finished.json"
    Finished(file, "tree-1").add("gate")
    assert "gate" in Finished(file, "tree-1")
    assert "gate" not in Finished(file, "tree-2")
    file.write_text("{")
    assert "gate" not in Finished(file, "tree-1")
    Finished(file, "tree-1").add("agent")
    assert json.loads(file.read_text()) == {"tree": "tree-1", "names": ["agent"]}


def test_what_a_run_records_is_no_other_tree(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "docs").mkdir()
    hashes = []
    for name in ("a.py", "docs/tried-nodes.json", "docs/install.md", "docs/b.md"):
        (tmp_path / name).write_text(name)
        hashes.append(tree_hash(tmp_path))
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]


@pytest.mark.parametrize(
    ("runs", "verdict"), [((True,), True), ((False, True), True), ((False, False), False)], ids=str
)
def test_the_second_run_of_a_part_decides(
    runs: tuple[bool, ...], verdict: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    left = list(runs)
    monkeypatch.setattr(ci, "run", lambda title, lanes, is_gate: [runner.Outcome("lane", left.pop(0), 1.0)])
    assert ci.run_parts([_PARTS.parts["chaos"]]) is verdict
    assert not left
    shown = capfd.readouterr().out
    assert ("first run failed, second run" in shown) is (len(runs) == 2)


def test_parts_that_fail_on_main_are_run_besides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    marked = tmp_path / "failing-parts"
    monkeypatch.setattr(ci, "FAILING", marked)
    monkeypatch.setattr(turns, "whose", lambda found: "agent")
    assert ci.due(_PARTS) == ["agent"]
    marked.write_text("chaos\nagent # twice is once\n")
    assert ci.due(_PARTS) == ["agent", "chaos"]
    marked.write_text("chaoss\n")
    with pytest.raises(SystemExit, match="no part is named chaoss"):
        ci.due(_PARTS)


def test_the_releases_are_those_that_are_supported() -> None:
    """One of each minor version from the chart's oldest to the pinned one, which is the last; a real node on the last two."""
    versions = [*_PARTS.releases]
    assert versions[-1] == family_of("kubelet").pinned_version.removeprefix("v")
    oldest = re.search(r'kubeVersion: ">=1\.(\d+)', (_ROOT / "charts/nodedevice/Chart.yaml").read_text())
    assert oldest
    newest = int(versions[-1].split(".")[1])
    assert [int(version.split(".")[1]) for version in versions] == [*range(int(oldest[1]), newest + 1)]
    assert {version for version, lanes in _PARTS.releases.items() if _PARTS.real_node in lanes} == set(versions[-2:])
