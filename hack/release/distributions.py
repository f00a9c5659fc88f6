"""Wheels and sdists of each distribution, by hatchling, whose archives depend only on the sources and SOURCE_DATE_EPOCH."""

import os
import subprocess
import sys
from pathlib import Path

from hack.release.errors import ReleaseError

DISTRIBUTIONS = ("proto", "common", "kube", "operator", "node-agent", "cli")


def build(sources: Path, target: Path, epoch: int) -> list[Path]:
    """Build every distribution of an exported tree into `target`. Returns the archives, sorted."""
    target.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONDONTWRITEBYTECODE": "1"}
    for distribution in DISTRIBUTIONS:
        done = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(target)],
            cwd=sources / distribution,
            env=environ,
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            end = done.stderr.strip().splitlines()[-1:]
            raise ReleaseError(
                f"{distribution} does not build ({' '.join(end)})", "run `make setup` again, then read it"
            )
    return sorted(target.iterdir())
