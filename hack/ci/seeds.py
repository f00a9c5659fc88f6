"""`make seeds SEEDS=20`: each random test with so many seeds, one after the other, and a table of those that fail.

SEED: the first seed, a new one by default; the others follow. ONLY: test files or folders instead of all random tests.
A failed run is repeated by SEED=<its seed> SEEDS=1 ONLY=<its file>. Writes build/seeds/<file>-<seed>.log.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_LOGS: Final = _ROOT / "build/seeds"
# the names of the seeds' variables: tests/examples.py
_RANDOM: Final = (
    "tests/conformance/oracle",
    "tests/conformance/test_cdi_library.py",
    # as root, where a machine can be a node; elsewhere it is skipped
    "tests/e2e/real_node/dra/test_random_pods.py",
    "tests/robustness/host",
    "tests/robustness/fuzz",
    "tests/robustness/faults",
    "tests/robustness/crash",
    "tests/robustness/chaos/test_chaos.py",
    "tests/integration/why/test_situations.py",
)
# property tests: Hypothesis draws
_PROPERTIES: Final = "tests/unit"


def main() -> int:
    try:
        count = int(os.environ.get("SEEDS") or 20)
        first = int(os.environ.get("SEED") or random.SystemRandom().randrange(1, 2**31))
    except ValueError:
        print("SEEDS and SEED are numbers, such as 20 and 4711", file=sys.stderr)
        return 2
    chosen = os.environ.get("ONLY", "").split() or [*_RANDOM, _PROPERTIES]
    _LOGS.mkdir(parents=True, exist_ok=True)
    failed = []
    try:
        for number, (seed, name) in enumerate(
            ((seed, name) for seed in range(first, first + count) for name in chosen), 1
        ):
            began = time.monotonic()
            is_ok = _run(name, seed)
            word = "ok" if is_ok else "FAILED"
            print(
                f"{number}/{count * len(chosen)} SEED={seed} {name}: {word}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            failed += [] if is_ok else [f"make seeds SEED={seed} SEEDS=1 ONLY={name}"]
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print("\n".join(["failed; to repeat:", *failed]) if failed else f"{count} seeds from {first}: all passed")
    return 1 if failed else 0


def _run(name: str, seed: int) -> bool:
    options = ["-m", "hypothesis", f"--hypothesis-seed={seed}"] if name == _PROPERTIES else []
    environment = {**os.environ, "HYPOTHESIS_PROFILE": "part", "SEED": str(seed)}
    log = _LOGS / f"{name.replace('/', '-')}-{seed}.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, name]
        done = subprocess.run(command, cwd=_ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
