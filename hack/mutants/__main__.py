"""Changes the code in one place at a time, and checks whether a unit test notices.

    python -m hack.mutants [--since COMMIT] [--count N] [--seed 1] [--only TEXT]

A sample of the mutants where a mistake loses a device or a number (_PARTS); with --since, only of functions that have
changed since that commit, uncommitted changes included. Each is tried with the unit tests that run its line, and, if it
survives, with the type check (types.py). Results are kept in build/mutants: an interrupted run resumes, and a later one
tries changed code, survivors again if tests changed, and killed mutants again if the test that failed was removed. Ends with 1
when in any part fewer than 95 % are killed, refused, or named in equivalent.toml with the reason. Unreached: no unit test runs the
line in its own process; it counts like a survivor.
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
_PROGRAMS: Final = ("proto/src/", "common/src/", "kube/src/", "operator/src/", "node-agent/src/")
_GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")
_TESTS: Final = ("tests/unit", "tests/fakes", "tests/conftest.py", "tests/examples.py")
_SAMPLE: Final = 500
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_AGENT: Final = "node-agent/src/nodedevice_agent"
_OPERATOR: Final = "operator/src/nodedevice_operator"
_PARTS: Final = {
    "device manager": (f"{_AGENT}/devicemanager/",),
    "identity": (
        "proto/src/nodedevice_api/device_ids.py",
        f"{_AGENT}/identity.py",
        f"{_AGENT}/identity_index.py",
        f"{_AGENT}/offered_twice/",
        f"{_AGENT}/plugins/generic/identity.py",
        f"{_AGENT}/plugins/generic/serials.py",
        f"{_AGENT}/plugins/nvml/identity.py",
    ),
    "checkpoint": (f"{_AGENT}/checkpoint/",),
    "node capacity": (f"{_OPERATOR}/capacity/",),
    "decoding": (
        "common/src/nodedevice_common/decoding.py",
        "kube/src/nodedevice_kube/decoding.py",
        "kube/src/nodedevice_kube/list_items.py",
        f"{_AGENT}/lib/wire_fields.py",
        f"{_AGENT}/deviceplugin/codec.py",
        f"{_AGENT}/dra/claim.py",
        f"{_AGENT}/dra/slices.py",
        f"{_AGENT}/kubelet/codec.py",
        f"{_AGENT}/kube/responses.py",
        f"{_AGENT}/kube/observed.py",
        f"{_AGENT}/nri/codec.py",
        f"{_OPERATOR}/kube/decode.py",
        f"{_OPERATOR}/objects/nodedevice.py",
        f"{_OPERATOR}/objects/nodedevice_schema.py",
    ),
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
        epilog="Unreached: not run by a unit test in its own process; counts like a survivor.",
    )
    parser.add_argument(
        "--since",
        metavar="COMMIT",
        help="only of functions that have changed since",
    )
    parser.add_argument("--count", type=int, help=f"how many mutants; {_SAMPLE}, or with --since all of them")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument(
        "--only", default="", help="of these, the ones whose file or function has this text in its name"
    )
    return parser.parse_args()


def _run(options: argparse.Namespace) -> int:
    if options.since is None:
        mutants = [mutant for file in _files(_prefixes()) for mutant in _mutants(file)]
    else:
        mutants = _mutants_since(options.since)
        if not mutants:
            print(f"no function of these parts has changed since {options.since}")
            return 0
    reasons = _reasons()
    count = options.count if options.count is not None else _SAMPLE if options.since is None else len(mutants)
    chosen = session.sample(mutants, count, options.seed)
    chosen = [mutant for mutant in chosen if options.only in f"{mutant.file} {mutant.function}"]
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    found = _try_all(chosen, reasons)
    return _report(found)


def _reasons() -> dict[session.Place, str]:
    """Reasons of the equivalent mutants. Raises ValueError if one of them is not a mutant."""
    reasons = session.equivalents(_EQUIVALENT)
    files = {place.file for place in reasons if (_ROOT / place.file).is_file()}
    if unknown := reasons.keys() - {session.Place.of(mutant) for file in files for mutant in _mutants(file)}:
        places = "; ".join(f"{place.file} {place.function}: {place.after}" for place in sorted(unknown))
        raise ValueError(f"{_EQUIVALENT}: remove the entries that are not mutants any more: {places}")
    return reasons


def _prefixes() -> list[str]:
    """Files, and folders with a slash at the end."""
    return [prefix for prefixes in _PARTS.values() for prefix in prefixes]


def _files(prefixes: Iterable[str]) -> list[str]:
    """Files that may be changed, by path from the root."""
    places = [_ROOT / prefix for prefix in prefixes]
    found = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    return [file.relative_to(_ROOT).as_posix() for file in found if not file.name.endswith(_GENERATED)]


@cache
def _mutants(file: str) -> list[Mutant]:
    return mutants_of(_ROOT, _ROOT / file)


def _mutants_since(commit: str) -> list[Mutant]:
    return [
        mutant
        for file, functions in changed_since(commit, _ROOT, _prefixes()).items()
        if not file.endswith(_GENERATED)
        for mutant in _mutants(file)
        if any(mutant.lines.start in lines for lines in functions)
    ]


def _try_all(chosen: list[Mutant], reasons: dict[session.Place, str]) -> list[tuple[Mutant, session.Result]]:
    tests = _digest(*_TESTS)
    results = session.Results(_BUILD / "results.jsonl", _ROOT)
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
    digest = _digest(*_PROGRAMS, *_TESTS)
    kept = _BUILD / "reach.json"
    if kept.exists() and (found := json.loads(kept.read_text()))["digest"] == digest:
        return trials.Reach.unpack(found)
    print("running all unit tests once, to learn which runs which line: a few minutes", flush=True)
    reach = trials.reach(_ROOT, _files(_prefixes()))
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


def _report(found: list[tuple[Mutant, session.Result]]) -> int:
    words = [(mutant, result.word) for mutant, result in found]
    for mutant, word in words:
        if word in (session.SURVIVED, session.UNREACHED):
            print(f"\n{word}: {_where(mutant)}")
    by_part = session.by_part(words, _PARTS)
    print("\n" + session.table(by_part))
    if not (low := [part for part, each in by_part.items() if session.share(each) < session.REQUIRED_SHARE]):
        return 0
    print(
        f"\nfewer than {session.REQUIRED_SHARE:.0%} in {', '.join(low)}: write a test for what survived, or name it in "
        f"{_EQUIVALENT} with the reason"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
