"""Changes the code in one place at a time, and checks whether a unit test notices.

    python -m hack.mutants [--since COMMIT] [--count N] [--seed 1] [--only TEXT]

Without --since, a sample of all mutants of the device manager, the checkpoint and the node's capacity; with it, those of
every function of the four packages that has changed since that commit, uncommitted changes included. Each is tried with the
unit tests that run its line, and, if it survives, with the type check (types.py). Results are kept in build/mutants: an
interrupted run resumes, and a later one tries changed code, and survivors again if tests changed. Ends with 1 when fewer
than 97 % are killed, refused, or named in equivalent.toml with the reason.

Unreached: no unit test runs the line in its own process. In the three folders above a test is missing, and it
counts like a survivor. With --since it does not count, as some code runs in programs that a test starts, or on a cluster;
the files it is in are listed.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from hack.mutants import session, trials, types
from hack.mutants.changes import changed_since
from hack.mutants.mutations import Mutant, mutants_of

_ROOT: Final = Path(__file__).parents[2]
_BUILD: Final = _ROOT / "build/mutants"
_PACKAGES: Final = {
    "api": "proto/src/",
    "common": "common/src/",
    "kube": "kube/src/",
    "operator": "operator/src/",
    "agent": "node-agent/src/",
    "cli": "cli/src/",
}
_GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")
_TESTS: Final = ("tests/unit", "tests/fakes", "tests/conftest.py", "tests/examples.py")
_SAMPLE: Final = 500
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_ROOMS: Final = {
    "device manager": "node-agent/src/nodedevice_agent/devicemanager/",
    "checkpoint": "node-agent/src/nodedevice_agent/checkpoint/",
    "node capacity": "operator/src/nodedevice_operator/capacity/",
}


def main() -> int:
    try:
        return _run(_options())
    except (RuntimeError, ValueError) as exc:
        print(exc, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command continues from here", file=sys.stderr)
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m hack.mutants",
        description=(__doc__ or "").partition("\n")[0],
        epilog="Unreached: not run by a unit test in its own process; listed by file, and with --since not counted.",
    )
    parser.add_argument(
        "--since",
        metavar="COMMIT",
        help="mutants of the functions changed since, in all packages, instead of the rooms'",
    )
    parser.add_argument("--count", type=int, help=f"how many mutants; {_SAMPLE}, or with --since all")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument(
        "--only", default="", help="of these, the ones whose file or function has this text in its name"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    if options.since is None:
        mutants = [mutant for file in _files(_ROOMS.values()) for mutant in _mutants(file)]
    else:
        mutants = _mutants_since(options.since)
        if not mutants:
            print(f"no function of the packages has changed since {options.since}")
            return 0
    reasons = _reasons()
    count = options.count if options.count is not None else _SAMPLE if options.since is None else len(mutants)
    chosen = session.sample(mutants, count, options.seed)
    chosen = [mutant for mutant in chosen if options.only in f"{mutant.file} {mutant.function}"]
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    found = _try_all(chosen, reasons)
    return _report(found, is_since=options.since is not None)


def _reasons() -> dict[session.Place, str]:
    """Reasons of the equivalent mutants. Raises ValueError if one of them is not a mutant."""
    reasons = session.equivalents(_EQUIVALENT)
    files = {place.file for place in reasons if (_ROOT / place.file).is_file()}
    if unknown := reasons.keys() - {session.Place.of(mutant) for file in files for mutant in _mutants(file)}:
        places = "; ".join(f"{place.file} {place.function}: {place.after}" for place in sorted(unknown))
        raise ValueError(f"{_EQUIVALENT}: remove the entries that are not mutants any more: {places}")
    return reasons


def _files(folders: Iterable[str]) -> list[str]:
    """Files that may be changed, by path from the root."""
    found = [file for folder in folders for file in sorted((_ROOT / folder).rglob("*.py"))]
    return [file.relative_to(_ROOT).as_posix() for file in found if not file.name.endswith(_GENERATED)]


@cache
def _mutants(file: str) -> list[Mutant]:
    return mutants_of(_ROOT, _ROOT / file)


def _mutants_since(commit: str) -> list[Mutant]:
    return [
        mutant
        for file, functions in changed_since(commit, _ROOT, [*_PACKAGES.values()]).items()
        if not file.endswith(_GENERATED)
        for mutant in _mutants(file)
        if any(mutant.lines.start in lines for lines in functions)
    ]


def _try_all(chosen: list[Mutant], reasons: dict[session.Place, str]) -> list[tuple[Mutant, session.Result]]:
    tests = _digest(*_TESTS)
    results = session.Results(_BUILD / "results.jsonl")
    trials.preload()
    reach = _reach()
    found = []
    for number, mutant in enumerate(chosen, 1):
        if session.Place.of(mutant) in reasons:
            result = session.Result(mutant.id, session.EQUIVALENT, "", 0.0, tests)
        elif (known := results.find(mutant.id, tests)) is not None:
            result = known
        else:
            names = reach.of(mutant.file, mutant.lines)
            expected = sum(reach.seconds[name] for name in names)
            outcome = trials.try_out(_ROOT, mutant.file, mutant.text, names, expected)
            word = outcome.word
            if word == session.SURVIVED and types.refuses(_ROOT, mutant.file, mutant.text):
                word = session.REFUSED
            result = session.Result(mutant.id, word, outcome.test, outcome.seconds, tests)
            results.add(result)
            if result.word != session.UNREACHED:
                print(f"{number}/{len(chosen)} {result.word} in {result.seconds} s: {_where(mutant)}", flush=True)
        found.append((mutant, result))
    return found


def _reach() -> trials.Reach:
    """Measured again after any change of the programs or of the tests."""
    digest = _digest(*_PACKAGES.values(), *_TESTS)
    kept = _BUILD / "reach.json"
    if kept.exists() and (found := json.loads(kept.read_text()))["digest"] == digest:
        return trials.Reach.unpack(found)
    print("running all unit tests once, to learn which runs which line: a few minutes", flush=True)
    reach = trials.reach(_ROOT, _files(_PACKAGES.values()))
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"digest": digest, **reach.pack()}))
    return reach


def _digest(*paths: str) -> str:
    found = hashlib.sha256()
    for path in paths:
        for file in [_ROOT / path] if path.endswith(".py") else sorted((_ROOT / path).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _where(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.lines.start} {mutant.function}\n    - {mutant.before}\n    + {mutant.after}"


def _report(found: list[tuple[Mutant, session.Result]], *, is_since: bool) -> int:
    words = [(mutant, result.word) for mutant, result in found]
    for mutant, word in words:
        if word == session.SURVIVED or (word == session.UNREACHED and not is_since):
            print(f"\n{word}: {_where(mutant)}")
    print("\n" + session.table(words, _PACKAGES if is_since else _ROOMS, is_unreached_counted=not is_since))
    if unreached := session.unreached_table(words):
        counted = "not counted in the share" if is_since else "counted as survivors"
        print(f"\nUnreached, as no unit test runs these lines in its own process; {counted}:\n\n{unreached}")
    reached = session.share([word for _, word in words], is_unreached_counted=not is_since)
    if reached is None or reached >= session.REQUIRED_SHARE:
        return 0
    print(
        f"\nfewer than {session.REQUIRED_SHARE:.0%}: write a test for what survived, or name it in {_EQUIVALENT} with the reason"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
