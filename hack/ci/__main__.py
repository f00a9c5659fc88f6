"""Runs the gate, a part, or everything.

python -m hack.ci gate               tests that decide about a change; REAL_NODE=1: with six tests on a real node
python -m hack.ci choose             the part whose turn it is
python -m hack.ci part [NAME...]     these parts; by default the part whose turn it is, and the parts in .ci/failing-parts
python -m hack.ci everything         the gate and all parts; continues where an earlier run of the same tree ended
python -m hack.ci releases [V...]    the main paths on these releases of Kubernetes, by default all supported; also continues
python -m hack.ci list               the parts, and their durations
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from hack.ci import turns
from hack.ci.finished import Finished
from hack.ci.parts import ROOT, Lane, Part, Parts, failing, read
from hack.ci.runner import run

FAILING: Final = ROOT / ".ci" / "failing-parts"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m hack.ci", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("gate", "choose", "part", "everything", "releases", "list"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="of parts, or releases")
    options = parser.parse_args()
    parts = read()
    kind, known = ("release", parts.releases) if options.what == "releases" else ("part", parts.parts)
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no {kind} is named {', '.join(unknown)}; these are: {', '.join(known)}")
    jobs: dict[str, Callable[[], bool]] = {
        "gate": lambda: _gate(parts),
        "choose": lambda: _choose(parts),
        "part": lambda: run_parts([parts.parts[name] for name in options.names or due(parts)]),
        "everything": lambda: _everything(parts),
        "releases": lambda: _on_releases(parts, options.names or list(parts.releases)),
        "list": lambda: _list(parts),
    }
    try:
        return 0 if jobs[options.what]() else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted; all started processes have ended", file=sys.stderr)
        return 130


def _gate(parts: Parts) -> bool:
    real_node = [parts.real_node] if os.environ.get("REAL_NODE") == "1" else []
    # the longest first
    return _is_ok("gate", (*real_node, *parts.gate.lanes, Lane("types", make=("types",))), is_gate=True)


def _choose(parts: Parts) -> bool:
    print(turns.describe(parts, due(parts)))
    return True


def due(parts: Parts) -> list[str]:
    """The part whose turn it is, and the parts that fail on main. Raises SystemExit if .ci/failing-parts names an
    unknown part.
    """
    marked = failing(FAILING.read_text(encoding="utf-8")) if FAILING.exists() else []
    if unknown := [name for name in marked if name not in parts.parts]:
        sys.exit(f".ci/{FAILING.name}: no part is named {', '.join(unknown)}")
    return list(dict.fromkeys([turns.whose(parts), *marked]))


def run_parts(chosen: Sequence[Part]) -> bool:
    """Runs all parts, also after a failure."""
    verdicts = {part.name: _part(part) for part in chosen}
    return all(verdicts.values())


def _part(part: Part) -> bool:
    """Tests of a part depend on clocks and random numbers. So a failed part is run again at once, and the second run
    decides.
    """
    if _is_ok(f"part {part.name}", part.lanes, is_gate=False):
        return True
    print(f"part {part.name} failed: once more, and that counts", flush=True)
    is_ok = _is_ok(f"part {part.name}, second run", part.lanes, is_gate=False)
    print(f"part {part.name}: first run failed, second run {'passed' if is_ok else 'failed'}", flush=True)
    return is_ok


def _is_ok(title: str, lanes: Sequence[Lane], *, is_gate: bool) -> bool:
    outcomes = run(title, lanes, is_gate=is_gate)
    return all(outcome.is_ok for outcome in outcomes)


def _everything(parts: Parts) -> bool:
    # the six tests on a real node are in the part of that name
    jobs: dict[str, Callable[[], bool]] = {"gate": lambda: _gate(parts)}
    for part in (*parts.parts.values(), parts.everything):
        jobs[part.name] = partial(_part, part)
    return _all_of("everything", jobs)


def _on_releases(parts: Parts, versions: Sequence[str]) -> bool:
    jobs = {
        f"{version} {lane.name}": partial(_on_release, version, lane)
        for version in versions
        for lane in parts.releases[version]
    }
    return _all_of("releases", jobs)


def _on_release(version: str, lane: Lane) -> bool:
    # code that needs programs, here and in child processes, uses programs of this release
    os.environ["KUBERNETES"] = version
    return _is_ok(f"Kubernetes {version}", [lane], is_gate=True)


def _all_of(title: str, jobs: Mapping[str, Callable[[], bool]]) -> bool:
    """Run each job that has not passed on this exact tree yet; all run, also after a failure."""
    finished = Finished.of_tree(ROOT)
    verdicts = {}
    for name, job in jobs.items():
        started = time.monotonic()
        if name in finished:
            verdicts[name] = "passed before"
            continue
        is_ok = job()
        if is_ok:
            finished.add(name)
        verdicts[name] = f"{'passed' if is_ok else 'FAILED'} {time.monotonic() - started:6.0f} s"
    print(f"\n{title}:")
    for name, verdict in verdicts.items():
        print(f"  {name:24} {verdict}")
    return not any(verdict.startswith("FAILED") for verdict in verdicts.values())


def _list(parts: Parts) -> bool:
    for part in (*parts.parts.values(), parts.everything):
        print(f"{part.name:12} {part.seconds or '':>5} s  {', '.join(_what(lane) for lane in part.lanes)}")
    return True


def _what(lane: Lane) -> str:
    return f"make {' '.join(lane.make)}" if lane.make else f"{len(lane.tests)} paths"


if __name__ == "__main__":
    sys.exit(main())
