"""The gate and the parts: no test is forgotten, none counts twice, and a lane that fails is never called a success."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from hack.ci import __main__ as ci
from hack.ci import parts, runner, turns
from hack.ci.finished import Finished
from hack.ci.parts import Lane, Part, Parts, files_below, files_of, read
from tests.cluster.build.binaries import ALL_PROGRAMS
from tests.cluster.build.pins import family_of

_ROOT = Path(__file__).parents[2]
_PARTS = read()
_ON_A_CLUSTER = re.compile(r"def test_\w+\([^)]*\b(control_plane|installed)\b")
_SHOWS_PROFILE = "import os\ndef test_it(): print('profile', os.environ['HYPOTHESIS_PROFILE'])\n"


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


def test_no_part_takes_longer_than_five_minutes() -> None:
    """What each took when it was measured; the emulated machine has six."""
    assert {name for name, part in _PARTS.parts.items() if part.seconds > 300} <= {"machine"}
    assert _PARTS.parts["machine"].seconds <= 360


def test_parts_that_fail_on_main_are_read_without_comments() -> None:
    assert parts.failing("# why\n\nagent  # since the change of X\nchaos\n") == ["agent", "chaos"]


def test_a_shallow_clone_takes_turns_by_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_git", lambda *arguments: "true")
    assert turns.whose(_PARTS) in _PARTS.parts
    assert "day" in turns.describe(_PARTS, ["agent", "chaos"])
    assert "fail on main: chaos" in turns.describe(_PARTS, ["agent", "chaos"])


def test_whose_turn_it_is_by_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"rev-parse": "false", "rev-list": "27"}
    monkeypatch.setattr(turns, "_git", lambda *arguments: answers[arguments[0]])
    names = list(_PARTS.parts)
    assert turns.whose(_PARTS) == names[27 % len(names)]
    assert "commit 27" in turns.describe(_PARTS, [names[0]])


def test_the_name_of_the_part_needs_nothing_that_is_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(_ROOT)!r}); import hack.ci.__main__"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runner, "_BUILD", tmp_path)
    return tmp_path


def test_one_lane_that_fails_is_a_failure_of_all(build: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (build / "test_good.py").write_text(_SHOWS_PROFILE)
    (build / "test_bad.py").write_text("def test_it(): assert 0, 'broken on purpose'\n")
    lanes = [Lane("good", (str(build / "test_good.py"), "-s")), Lane("bad", (str(build / "test_bad.py"),))]
    outcomes = runner.run("a trial", lanes, is_gate=True)
    assert [(each.lane, each.is_ok, each.passed, each.failed) for each in outcomes] == [
        ("good", True, 1, 0),
        ("bad", False, 0, 1),
    ]
    shown = capfd.readouterr().out
    assert "broken on purpose" in shown
    assert "good: ok after" in shown
    assert "profile gate" in (build / "good.log").read_text()
    assert shown.rstrip().endswith("1 passed, 1 failed, 0 skipped")


def test_a_lane_without_tests_and_a_target_that_fails_are_failures(
    build: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (build / "test_none.py").write_text("")
    (build / "test_good.py").write_text(_SHOWS_PROFILE)
    lanes = [
        Lane("good", (str(build / "test_good.py"), "-s")),
        Lane("none", (str(build / "test_none.py"),)),
        Lane("target", make=("no-such-target",)),
    ]
    outcomes = runner.run("a trial", lanes, is_gate=False)
    assert [each.is_ok for each in outcomes] == [True, False, False]
    assert runner.closing_line(outcomes) == "1 passed, 2 failed, 0 skipped"
    assert "profile part" in (build / "good.log").read_text()
    assert "No rule to make target" in capfd.readouterr().out


def test_a_run_says_how_far_its_lanes_are(
    build: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_PROGRESS_SECONDS", 0.01)
    (build / "test_it.py").write_text("def test_it(): pass\n")
    assert runner.run("a trial", [Lane("lane", (str(build / "test_it.py"),))], is_gate=True)[0].is_ok
    assert re.search(r"^after \d+ s: lane$", capfd.readouterr().out, re.MULTILINE)


def test_how_far_pytest_is() -> None:
    assert runner.how_far(b"") == ""
    assert runner.how_far(b"..... [  7%]\n.....x [ 41%]\n...") == "41 %"


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Go, to be written; nothing is built yet."""
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    for name, value in {"XDG_CACHE_HOME": tmp_path / "cache", "BINARIES": "build"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    return go


def _write_go(go: Path, build: str) -> None:
    done = 'while [ "$1" != -o ]; do shift; done; touch "$2"'
    go.write_text(f"#!/bin/sh\n[ $1 = env ] && {{ echo go1.99.1; exit; }}\n{build}\n{done}\n")
    go.chmod(0o755)


def test_a_lane_waits_for_its_programs_and_the_others_do_not(
    build: Path, go: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build here goes on until the other lane has ended; there is one place, and the lane that waits comes first."""
    monkeypatch.setattr(runner, "_AT_ONCE", 1)
    ended, built = build / "ended", build / "cache/nodedevice/bin"
    _write_go(go, f"for _ in $(seq 600); do [ -e {ended} ] && break; sleep 0.1; done; [ -e {ended} ] || exit 1")
    (build / "test_unit.py").write_text(f"def test_it(): open({str(ended)!r}, 'x')\n")
    shown = f"pathlib.Path({str(built)!r}).glob('*/checker')"
    (build / "test_slow.py").write_text(f"import pathlib\ndef test_it(): assert list({shown})\n")
    slow = Lane("slow", (str(build / "test_slow.py"),), programs=("checker",))
    outcomes = runner.run("a trial", [slow, Lane("unit", (str(build / "test_unit.py"),))], is_gate=True)
    assert [each.is_ok for each in outcomes] == [True, True]
    printed = capfd.readouterr().out
    assert "slow waits for its programs" in printed
    again = runner.run("a trial", [slow], is_gate=True)
    assert again[0].is_ok
    assert "waits" not in capfd.readouterr().out


@pytest.mark.parametrize(("assets", "why"), [("", "no such compiler"), ("/nowhere/at/all", "which is not a folder")])
def test_a_lane_without_its_programs_fails_and_shows_why(
    build: Path, go: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, assets: str, why: str
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", assets)
    _write_go(go, "echo no such compiler >&2; exit 1")
    (build / "test_it.py").write_text("def test_it(): pass\n")
    lanes = [Lane("slow", (str(build / "test_it.py"),), programs=("checker",))]
    assert [(each.is_ok, each.passed) for each in runner.run("a trial", lanes, is_gate=True)] == [(False, 0)]
    assert why in capfd.readouterr().out


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


def test_an_unknown_key_of_a_lane_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "parts.toml"
    file.write_text("[gate.unit]\ntest = []\n")
    with pytest.raises(TypeError, match="test"):
        read(file)


def test_lanes_of_a_part_share_its_environment() -> None:
    part = _PARTS.parts["crash"]
    assert isinstance(part, Part)
    assert all(lane.env["CRASH_POINTS"] for lane in part.lanes)
    assert len({lane.name for lane in part.lanes}) == len(part.lanes)


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


def _run_releases(names: Sequence[str], monkeypatch: pytest.MonkeyPatch, fails: str = "") -> tuple[bool, list[str]]:
    """Whether all passed, and what ran: `release lane`, in the order in which it ran."""
    ran = []

    def run(title: str, lanes: Sequence[Lane], *, is_gate: bool) -> list[runner.Outcome]:
        assert is_gate
        assert title == f"Kubernetes {os.environ['KUBERNETES']}"
        ran.append(f"{os.environ['KUBERNETES']} {lanes[0].name}")
        return [runner.Outcome(lane.name, ran[-1] != fails, 1.0) for lane in lanes]

    monkeypatch.setattr(ci, "run", run)
    monkeypatch.setattr(sys, "argv", ["hack.ci", "releases", *names])
    return ci.main() == 0, ran


def test_each_release_runs_its_lanes_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lane that failed does not end the run, and is all that a second run does."""
    monkeypatch.setenv("KUBERNETES", "")
    monkeypatch.setattr(Finished, "of_tree", lambda root: Finished(tmp_path / "finished.json", "tree"))
    whole = [f"{version} {lane.name}" for version, lanes in _PARTS.releases.items() for lane in lanes]
    broken = whole[1]
    assert _run_releases([], monkeypatch, fails=broken) == (False, whole)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [*broken.split(), "FAILED"] in shown
    assert [*whole[-1].split(), "passed"] in shown
    assert _run_releases([], monkeypatch) == (True, [broken])
    assert _run_releases([], monkeypatch) == (True, [])


def test_one_release_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBERNETES", "")
    monkeypatch.setattr(Finished, "of_tree", lambda root: Finished(tmp_path / "finished.json", "tree"))
    newest = [*_PARTS.releases][-1]
    assert _run_releases([newest], monkeypatch) == (True, [f"{newest} {lane.name}" for lane in _PARTS.releases[newest]])
    with pytest.raises(SystemExit):
        _run_releases(["1.2.3"], monkeypatch)
    assert "no release is named 1.2.3; these are: 1.34.4" in capsys.readouterr().err


def test_the_releases_are_those_that_are_supported() -> None:
    """One of each minor version from the chart's oldest to the pinned one, which is the last; a real node on the last two."""
    versions = [*_PARTS.releases]
    assert versions[-1] == family_of("kubelet").pinned_version.removeprefix("v")
    oldest = re.search(r'kubeVersion: ">=1\.(\d+)', (_ROOT / "charts/nodedevice/Chart.yaml").read_text())
    assert oldest
    newest = int(versions[-1].split(".")[1])
    assert [int(version.split(".")[1]) for version in versions] == [*range(int(oldest[1]), newest + 1)]
    assert {version for version, lanes in _PARTS.releases.items() if _PARTS.real_node in lanes} == set(versions[-2:])
