"""`make bench AGAINST=...`: which rows are worse, which rounds are still to be measured, and what makes up a tree."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hack.bench import trees, verdicts
from hack.bench.against import Round, bench_of, measure_missing, missing, publish
from hack.bench.results import Result, information, judged
from hack.bench.trees import Tree, TreeError
from hack.bench.verdicts import Row, Verdict


def _results(value: float, unit: str = "s", name: str = "row", p99: float = 0.0) -> dict[str, Result]:
    return {name: judged(value, p99, unit, 1.0, 60)}


def _row(old: list[float], new: list[float], unit: str = "s", name: str = "row") -> Row:
    sides = [[_results(value, unit, name) for value in side] for side in (old, new)]
    (row,) = verdicts.rows(*sides)
    return row


@pytest.mark.parametrize(
    ("old", "new", "unit", "verdict"),
    [
        pytest.param([100, 100, 100], [105, 105, 105], "s", Verdict.EQUAL, id="five percent is allowed"),
        pytest.param([100, 100, 100], [105.1, 105.1, 105.1], "s", Verdict.WORSE, id="more is not"),
        pytest.param([100, 100, 100], [94, 94, 94], "s", Verdict.BETTER, id="less is better"),
        pytest.param([100, 100, 100], [94, 94, 94], "/s", Verdict.WORSE, id="of a rate more is better"),
        pytest.param([100, 100, 100], [106, 106, 106], "/s", Verdict.BETTER, id="a higher rate"),
        pytest.param([95, 100, 115], [120, 120, 120], "s", Verdict.EQUAL, id="as much as the old rounds differ by"),
        pytest.param([95, 100, 115], [121, 121, 121], "s", Verdict.WORSE, id="more than the old rounds differ by"),
        pytest.param([100, 100, 100], [100, 100, 900], "s", Verdict.EQUAL, id="one slow round of three"),
        pytest.param([100], [104, 108], "s", Verdict.WORSE, id="rounds of different number"),
        pytest.param([0, 0, 0], [0, 0, 0], "writes", Verdict.EQUAL, id="nothing and nothing"),
        pytest.param([0, 0, 0], [1, 1, 1], "writes", Verdict.WORSE, id="something where nothing was"),
        pytest.param([0, 0, 2], [2, 2, 2], "writes", Verdict.EQUAL, id="nothing, mostly"),
        pytest.param([-10, -10, -10], [-9, -9, -9], "writes", Verdict.WORSE, id="less than nothing"),
        pytest.param([-10, -10, -10], [-9.6, -9.6, -9.6], "writes", Verdict.EQUAL, id="less than nothing, within 5 %"),
    ],
)
def test_a_row_is_judged_by_its_medians(old: list[float], new: list[float], unit: str, verdict: Verdict) -> None:
    assert _row(old, new, unit).verdict is verdict


def test_change_and_allowance_are_parts_of_the_old_median() -> None:
    row = _row([8, 10, 11], [9, 12, 20])
    assert (row.old, row.new) == (10, 12)
    assert (row.change, row.allowed) == pytest.approx((20, 30))
    row = _row([0, 0, 0], [1, 1, 1])
    assert (row.change, row.allowed) == (None, None)


def test_what_one_in_a_hundred_waits_for_is_shown_and_not_judged() -> None:
    (row,) = verdicts.rows([_results(1.0, p99=2.0)], [_results(1.0, p99=9.0)])
    assert (row.old_p99, row.new_p99, row.verdict) == (2.0, 9.0, Verdict.EQUAL)
    assert _row([1.0], [9.0], name="xid_to_node_p99").verdict is Verdict.NOT_JUDGED


def test_a_row_of_one_side_is_shown_and_not_judged() -> None:
    old, new = _results(1.0, name="dropped"), _results(2.0, name="added")
    found = verdicts.rows([old, old], [new, new])
    assert [(row.name, row.old, row.new, row.verdict) for row in found] == [
        ("added", None, 2.0, Verdict.NOT_JUDGED),
        ("dropped", 1.0, None, Verdict.NOT_JUDGED),
    ]


def test_information_is_shown_and_not_judged() -> None:
    (row,) = verdicts.rows([{"row": information([1.0, 1.0], "MiB")}], [{"row": information([9.0, 9.0], "MiB")}])
    assert (row.old, row.new, row.verdict) == (1.0, 9.0, Verdict.NOT_JUDGED)


def test_a_row_in_another_unit_is_not_judged() -> None:
    (row,) = verdicts.rows([_results(1.0, "s")], [_results(1000.0, "ms")])
    assert row.verdict is Verdict.NOT_JUDGED


def test_the_rows_that_are_worse_are_named() -> None:
    old = _results(1.0, name="a") | _results(1.0, name="b") | _results(1.0, "/s", "c")
    new = _results(2.0, name="a") | _results(0.5, name="b") | _results(0.5, "/s", "c")
    assert verdicts.worse(verdicts.rows([old], [new])) == ["a", "c"]


def test_a_complete_round_is_not_measured_again(tmp_path: Path) -> None:
    measured: list[str] = []

    def bench(log: Path) -> dict[str, Result]:
        if len(measured) == 3:
            raise RuntimeError("cut off")
        measured.append(log.stem)
        return _results(1.0)

    with pytest.raises(RuntimeError, match="cut off"):
        measure_missing(tmp_path, 3, bench, bench, lambda _: None)
    assert measured == ["old-1", "new-1", "old-2"], "in turn"
    assert missing(tmp_path, 3) == [2, 3]
    measured.clear()
    measure_missing(tmp_path, 2, bench, bench, lambda _: None)
    assert measured == ["old-2", "new-2"]
    assert missing(tmp_path, 2) == []


def _tree(path: Path, bench: str) -> Tree:
    """bench: the code of its hack.bench."""
    (path / "hack" / "bench").mkdir(parents=True)
    (path / "hack" / "bench" / "__main__.py").write_text(bench)
    (path / "build").mkdir()
    return Tree(path, Path(sys.executable))


def test_what_the_bench_of_a_tree_writes_is_measured(tmp_path: Path) -> None:
    results = _results(2.0)
    written = msgspec.json.encode(results).decode()
    tree = _tree(tmp_path / "old", f"import pathlib; pathlib.Path('build/bench.json').write_text('{written}')")
    assert bench_of(tree)(tmp_path / "log") == results


@pytest.mark.parametrize(
    "bench",
    [
        "print('no control plane')",
        "import pathlib; pathlib.Path('build/bench.json').write_text('{}'); raise SystemExit('why:\\nno control plane')",
    ],
    ids=["without a result", "with an error"],
)
def test_a_bench_that_measures_nothing_is_an_error_of_one_line(tmp_path: Path, bench: str) -> None:
    tree = _tree(tmp_path / "old", bench)
    # of a run before
    (tree.path / "build" / "bench.json").write_text("{}")
    with pytest.raises(TreeError, match=r"old: the bench ended with \d: no control plane") as caught:
        bench_of(tree)(tmp_path / "log")
    assert "\n" not in str(caught.value)


def test_a_commits_own_bench_that_fails_on_its_way_gives_its_rows_so_far(tmp_path: Path) -> None:
    written = msgspec.json.encode(_results(2.0)).decode()
    bench = f"import pathlib; pathlib.Path('build/bench.json').write_text('{written}'); raise SystemExit('refused')"
    tree, lines = _tree(tmp_path / "old", bench), list[str]()
    assert bench_of(tree, lines.append)(tmp_path / "log") == _results(2.0)
    assert len(lines) == 1
    assert lines[0].startswith("old: the bench ended with 1: refused")
    assert lines[0].endswith("its 1 rows until then count")
    with pytest.raises(TreeError):
        bench_of(tree)(tmp_path / "log")


@pytest.mark.parametrize(
    ("new", "status", "line"), [(1.0, 0, "no row is worse"), (1.2, 1, "worse: row")], ids=["as before", "worse"]
)
def test_a_worse_row_is_the_exit_status_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: float, status: int, line: str
) -> None:
    out = tmp_path / "build" / "bench-against.json"
    rounds = [Round(_results(1.0), _results(new))] * 3
    assert publish("0123456789abcdef", rounds, out) == status
    assert capsys.readouterr().out.splitlines()[-1] == line
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["name"], row["old"], row["new"]) == ("row", 1.0, new)


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., None]:
    """Runs git in a new repository at tmp_path/repository, which has one file of a program."""
    root = tmp_path / "repository"

    def run(*arguments: str) -> None:
        who = ("-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True)

    (root / "common").mkdir(parents=True)
    (root / "common" / "module.py").write_text("x = 1\n")
    (root / ".gitignore").write_text("__pycache__/\n")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "-m", "first")
    return run


def test_a_copy_of_the_working_tree_has_what_is_not_committed_and_nothing_ignored(
    tmp_path: Path, git: Callable[..., None]
) -> None:
    root = tmp_path / "repository"
    (root / "common" / "gone.py").touch()
    git("add", ".")
    (root / "common" / "gone.py").unlink()
    (root / "common" / "fresh.py").write_text("y = 2\n")
    (root / "common" / "__pycache__").mkdir()
    (root / "common" / "__pycache__" / "module.pyc").touch()
    (root / "notes.md").touch()
    trees.copy_working_tree(root, tmp_path / "copy")
    files = [str(file.relative_to(tmp_path / "copy")) for file in (tmp_path / "copy").rglob("*") if file.is_file()]
    assert sorted(files) == ["common/fresh.py", "common/module.py"]


def test_another_content_or_another_name_is_another_tree(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    found = set()
    for content in ("x = 1\n", "x = 2\n"):
        file.write_text(content)
        found.add(trees.digest(tmp_path))
    file.rename(tmp_path / "other.py")
    found.add(trees.digest(tmp_path))
    assert len(found) == 3
    (tmp_path / "other.py").touch()
    assert trees.digest(tmp_path) in found, "when it was written is no difference"


def test_modules_of_a_tree_and_of_its_libraries_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    site = tmp_path / "site-packages"
    monkeypatch.setattr(trees, "_site_folders", lambda _: [str(site)])
    for folder in (tmp_path / "common" / "src", tmp_path / "cli" / "src", tmp_path / "hack", site):
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("x = 1\n")
    (site / "other_release.py").write_text("print 1\n")
    trees.compile_modules(Path(sys.executable), tmp_path)
    assert len(list(tmp_path.rglob("module.*.pyc"))) == 8, "with docstrings and without"


def test_a_worktree_is_removed_with_the_repositorys_record_of_it(tmp_path: Path, git: Callable[..., None]) -> None:
    root, path = tmp_path / "repository", tmp_path / "old"
    trees.add_worktree(root, trees.commit_of(root, "HEAD"), path)
    assert (path / "common" / "module.py").exists()
    (path / "common" / "module.py").write_text("x = 2\n")
    subprocess.run(trees.remove_worktree(root, path), check=True)
    assert not path.exists()
    assert not list((root / ".git").glob("worktrees/*"))


def test_a_tree_gets_its_own_bench_back(tmp_path: Path, git: Callable[..., None]) -> None:
    root, old, new = tmp_path / "repository", tmp_path / "old", tmp_path / "new"
    for folder in trees.BENCH:
        for tree, content in ((root, "before"), (new, "now")):
            (tree / folder).mkdir(parents=True)
            (tree / folder / "module.py").write_text(f"{content} = 1\n")
        (new / folder / "fresh.py").touch()
    git("add", ".")
    git("commit", "--quiet", "-m", "with a bench")
    trees.add_worktree(root, trees.commit_of(root, "HEAD"), old)
    trees.lay_over(new, old)
    assert (old / "hack" / "fresh.py").exists()
    trees.restore(old)
    assert not (old / "hack" / "fresh.py").exists()
    assert (old / "hack" / "module.py").read_text() == "before = 1\n"


def test_an_unknown_commit_is_an_error_of_one_line(tmp_path: Path, git: Callable[..., None]) -> None:
    with pytest.raises(TreeError, match="commit 'nowhere' not found here") as caught:
        trees.commit_of(tmp_path / "repository", "nowhere")
    assert "\n" not in str(caught.value)
