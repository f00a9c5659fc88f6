"""`make workflows`: runs actionlint over .github/workflows, without linters of other languages, which not every machine
has.
"""

import subprocess
import sys
from pathlib import Path

from tests.cluster.build.binaries import find
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[2]


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Check every workflow of a tree; faults are on stdout, and the exit status is 0 without any."""
    actionlint = find(["actionlint"], print)["actionlint"]
    files = sorted(str(path) for path in (root / ".github/workflows").glob("*.yaml"))
    return subprocess.run(
        [actionlint, "-no-color", "-shellcheck=", "-pyflakes=", *files], capture_output=True, text=True, check=False
    )


def main() -> None:
    try:
        done = lint(ROOT)
    except ClusterError as exc:
        sys.exit(str(exc))
    print(done.stdout + done.stderr, end="")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
