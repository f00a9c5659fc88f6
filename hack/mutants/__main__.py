"""Change the code in one place at a time: does a unit test notice?

    python -m hack.mutants [--count 500] [--seed 1] [--only TEXT]

A sample of all mutants of the device manager, the checkpoint and the node's capacity; each is tried with the tests that
run its line. Results are kept in build/mutants: a run that was cut off goes on where it was, and a later one tries what
changed, and again what survived when there are other tests. Ends with 1 when fewer than 95 % are killed or named in
equivalent.toml with the reason.
"""

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from hack.mutants import session, trials
from hack.mutants.mutations import Mutant, mutants_of

_ROOT: Final = Path(__file__).parents[2]
_BUILD: Final = _ROOT / "build/mutants"
_SOURCES: Final = ("node-agent/src", "operator/src", "common/src")
_TESTS: Final = ("tests/unit", "tests/fakes")
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_ROOMS: Final = {
    "device manager": "node-agent/src/nodedevice_agent/devicemanager/",
    "checkpoint": "node-agent/src/nodedevice_agent/checkpoint/",
    "node capacity": "operator/src/nodedevice_operator/capacity/",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument(
        "--only", default="", help="of these, the ones whose file or function has this text in its name"
    )
    options = parser.parse_args()
    mutants = [
        mutant
        for room in _ROOMS.values()
        for file in sorted((_ROOT / room).rglob("*.py"))
        for mutant in mutants_of(_ROOT, file)
    ]
    chosen = session.sample(mutants, options.count, options.seed)
    chosen = [mutant for mutant in chosen if options.only in f"{mutant.file} {mutant.function}"]
    print(f"{len(chosen)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    try:
        reasons = session.equivalents(_EQUIVALENT)
        if unknown := reasons.keys() - {session.Place.of(mutant) for mutant in mutants}:
            raise ValueError(f"{_EQUIVALENT}: no mutant is so any more, remove: {sorted(unknown)}")
        found = _try_all(chosen, reasons, sorted({mutant.file for mutant in mutants}))
    except (RuntimeError, ValueError) as exc:
        print(exc, file=sys.stderr)
        return 2
    return _report(found)


def _try_all(
    chosen: list[Mutant], reasons: dict[session.Place, str], files: list[str]
) -> list[tuple[Mutant, session.Result]]:
    tests = _digest(*_TESTS)
    results = session.Results(_BUILD / "results.jsonl")
    trials.preload()
    reach = _reach(files)
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
            result = session.Result(mutant.id, outcome.word, outcome.test, outcome.seconds, tests)
            results.add(result)
            print(f"{number}/{len(chosen)} {result.word} in {result.seconds} s: {_where(mutant)}", flush=True)
        found.append((mutant, result))
    return found


def _reach(files: list[str]) -> trials.Reach:
    """Measured again when a file of the programs or of the tests is another."""
    digest = _digest(*_SOURCES, *_TESTS) + " ".join(files)
    kept = _BUILD / "reach.json"
    if kept.exists() and (found := json.loads(kept.read_text()))["digest"] == digest:
        tests = {file: {int(line): names for line, names in lines.items()} for file, lines in found["tests"].items()}
        return trials.Reach(tests, found["seconds"])
    print("running all unit tests once, to learn which runs which line: a few minutes", flush=True)
    reach = trials.reach(_ROOT, files)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"digest": digest, **asdict(reach)}))
    return reach


def _digest(*folders: str) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for file in sorted((_ROOT / folder).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _where(mutant: Mutant) -> str:
    return f"{mutant.file}:{mutant.lines.start} {mutant.function}\n    - {mutant.before}\n    + {mutant.after}"


def _report(found: list[tuple[Mutant, session.Result]]) -> int:
    words = [result.word for _, result in found]
    for mutant, result in found:
        if result.word in ("survived", "unreached"):
            print(f"\n{result.word}: {_where(mutant)}")
    print("\n" + session.table([(mutant, result.word) for mutant, result in found], _ROOMS))
    if session.share(words) >= session.REQUIRED_SHARE:
        return 0
    print(
        f"fewer than {session.REQUIRED_SHARE:.0%}: write a test for what survived, or name it in {_EQUIVALENT} with the reason"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
