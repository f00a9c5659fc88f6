"""`make bench AGAINST=<commit> ROUNDS=3`: the working tree and another commit, measured in turn.

Each side runs its own programs with its own chart. The same code measures both: this tree's hack/ and tests/, laid
over the other commit's. So a row means the same on both sides. Both use the same Kubernetes, which is built once.
That code imports modules of the programs. If these have other names at a commit, each side is measured by its own
tree's code, which is printed. --own-bench always does so. If a commit's own bench fails, the rows until then count. A
row that only one side has is shown, but not judged.
Each completed round is kept in build/bench-against; the same command continues with the next one.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from hack.bench import trees, verdicts
from hack.bench.results import Result
from hack.bench.running import show_progress
from hack.bench.trees import Tree, TreeError
from hack.bench.verdicts import Row
from tests.cluster.processes.processes import removed_at_the_end, running, tail

_ROOT: Final = Path(__file__).parents[2]
_BUILD: Final = _ROOT / "build"
_KEPT: Final = _BUILD / "bench-against"
_MODULE: Final = "hack.bench"
# the file that it writes, in build/
_OUT: Final = "bench.json"
# time for a control plane to end gracefully
_STOP_SECONDS: Final = 60.0

# takes the file for the bench's output
Measure = Callable[[Path], dict[str, Result]]


class Round(msgspec.Struct):
    """One measurement of both sides, by row name."""

    old: dict[str, Result]
    new: dict[str, Result]


class _Report(msgspec.Struct):
    commit: str
    rows: list[Row]
    rounds: Sequence[Round]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit instead")
    parser.add_argument("--rounds", type=_count, default=3, help="how often each side is measured; default 3")


def _count(text: str) -> int:
    """Raises ArgumentTypeError."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of rounds, such as 3")
    return int(text)


@contextmanager
def checked_out(name: str) -> Iterator[Tree | None]:
    """The prepared tree of a commit, until the block ends; None without a name. Raises TreeError."""
    if not name:
        yield None
        return
    commit = trees.commit_of(_ROOT, name)
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-against-"))
    path = folder / "before"
    with removed_at_the_end(folder, trees.remove_worktree(_ROOT, path)):
        show_progress(f"preparing the tree of {name}")
        trees.add_worktree(_ROOT, commit, path)
        yield _prepared(path, folder / "venv")


def against(options: argparse.Namespace) -> int:
    """Compare with a commit, and print a table. Returns the exit status: 1 if a row is worse, 2 on errors.

    options: those of add_options(), and own_bench.
    """
    try:
        commit = trees.commit_of(_ROOT, options.against)
        rounds = _rounds(commit, options.rounds, own_bench=options.own_bench)
    except TreeError as exc:
        print(f"bench: {exc}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench: interrupted; the same command continues after the last complete round", file=sys.stderr)
        return 130
    return publish(commit, rounds, _BUILD / "bench-against.json")


def _rounds(commit: str, count: int, *, own_bench: bool) -> list[Round]:
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-against-"))
    old, new = folder / "old", folder / "new"
    with removed_at_the_end(folder, trees.remove_worktree(_ROOT, old)):
        trees.copy_working_tree(_ROOT, new)
        kept = _KEPT / f"bench-{commit[:12]}-{trees.digest(new)[:12]}"
        by_own = kept.with_name(f"{kept.name}-own-bench")
        found = by_own if own_bench or not missing(by_own, count) else kept
        if missing(found, count):
            show_progress("preparing both trees")
            trees.add_worktree(_ROOT, commit, old)
            if not own_bench:
                trees.lay_over(new, old)
            sides = _prepared(old, folder / "old-venv"), _prepared(new, folder / "new-venv")
            if not own_bench and not _fits(sides[0], commit):
                trees.restore(old)
                trees.compile_modules(sides[0].python, old)
                found = by_own
            found.mkdir(parents=True, exist_ok=True)
            measure_old = bench_of(sides[0], show_progress if found == by_own else None)
            measure_missing(found, count, measure_old, bench_of(sides[1]), show_progress)
    return [_read(found, number) for number in range(1, count + 1)]


def _prepared(path: Path, venv: Path) -> Tree:
    return trees.prepare(path, venv, has_own_dependencies=not trees.has_same_dependencies(path, _ROOT))


def _fits(tree: Tree, commit: str) -> bool:
    """Whether that tree can import the bench; prints the cause if not."""
    try:
        trees.verify_imports(tree, f"{_MODULE}.__main__")
    except TreeError as exc:
        show_progress(f"this tree's bench does not fit {commit[:12]}, which is measured with its own one: {exc}")
        return False
    return True


def missing(kept: Path, count: int) -> list[int]:
    """Numbers of the rounds that are not kept in that folder yet."""
    return [number for number in range(1, count + 1) if not _file(kept, number).exists()]


def measure_missing(kept: Path, count: int, old: Measure, new: Measure, progress: Callable[[str], None]) -> None:
    """Measure these rounds, old and new in turn, and keep each complete one."""
    for number in missing(kept, count):
        progress(f"round {number} of {count}: old")
        before = old(kept / f"old-{number}.log")
        progress(f"round {number} of {count}: new")
        found = Round(before, new(kept / f"new-{number}.log"))
        temporary = _file(kept, number).with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.encode(found))
        temporary.replace(_file(kept, number))


def _file(kept: Path, number: int) -> Path:
    return kept / f"round-{number}.json"


def _read(kept: Path, number: int) -> Round:
    return msgspec.json.decode(_file(kept, number).read_bytes(), type=Round)


def bench_of(tree: Tree, ended_early: Callable[[str], None] | None = None) -> Measure:
    """Runs the bench of a tree. Raises TreeError.

    ended_early: called with the error if the bench fails after some rows, which count; None: such an error is raised.
    """

    def measure(log: Path) -> dict[str, Result]:
        out = tree.path / "build" / _OUT
        out.unlink(missing_ok=True)
        with (
            log.open("wb") as printed,
            _running([str(tree.python), "-m", _MODULE], tree.path, printed.fileno()) as process,
        ):
            status = process.wait()
        rows = msgspec.json.decode(out.read_bytes(), type=dict[str, Result]) if out.exists() else {}
        problem = f"{tree.path.name}: the bench ended with {status}: {tail(log, 1)} ({_shown(log)})"
        if not rows or (status and ended_early is None):
            raise TreeError(problem)
        if status and ended_early is not None:
            ended_early(f"{problem}; its {len(rows)} rows until then count")
        return rows

    return measure


@contextmanager
def _running(command: Sequence[str], folder: Path, output: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that Ctrl-C does not reach; ended gracefully with the block, killed with this process."""
    with running(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)


def publish(commit: str, rounds: Sequence[Round], path: Path) -> int:
    """Publish as JSON and as a table. Returns 1, and prints the row, if a row is worse."""
    report = _Report(commit, verdicts.rows([r.old for r in rounds], [r.new for r in rounds]), rounds)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    _show(report)
    print(f"written to {_shown(path)}")
    if found := verdicts.worse(report.rows):
        print(f"worse: {', '.join(found)}")
        return 1
    print("no row is worse")
    return 0


def _show(report: _Report) -> None:
    table = Table(title=f"the working tree against {report.commit[:12]}, medians of {len(report.rounds)} rounds")
    for column in ("what", "unit", "old", "new", "change %", "allowed %", "old p99", "new p99", "verdict"):
        table.add_column(column, justify="left" if column in ("what", "unit", "verdict") else "right")
    for row in report.rows:
        numbers = [_number(value) for value in (row.old, row.new)]
        percents = [_number(row.change, "+.1f"), _number(row.allowed, ".1f")]
        numbers += [*percents, _number(row.old_p99), _number(row.new_p99)]
        table.add_row(row.name, row.unit, *numbers, row.verdict.value)
    Console(width=130).print(table)


def _number(value: float | None, form: str = "") -> str:
    if value is None:
        return "-"
    return format(value, form or (",.0f" if abs(value) >= 1000 else ".3f"))


def _shown(path: Path) -> str:
    return os.path.relpath(path)
