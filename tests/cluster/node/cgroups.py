"""The cgroup of a real node: the kubelet puts all pods below it."""

import contextlib
from pathlib import Path

from tests.cluster.node.leftovers import cgroup_roots

# Version 1 does not inherit these, and a group without them can hold no process.
_TO_COPY = ("cpuset.cpus", "cpuset.mems")


def create(name: str) -> None:
    """Create it in every hierarchy. Does nothing if it exists. Raises OSError if not permitted."""
    for root in map(Path, cgroup_roots()):
        (root / name).mkdir(exist_ok=True)
        for setting in _TO_COPY:
            with contextlib.suppress(FileNotFoundError, PermissionError):
                (root / name / setting).write_text((root / setting).read_text())


def controllers() -> set[str]:
    """Names of the available controllers, of either version."""
    roots = list(map(Path, cgroup_roots()))
    unified = [
        (root / "cgroup.controllers").read_text().split() for root in roots if (root / "cgroup.controllers").exists()
    ]
    # version 1 may combine two in one folder: `cpu,cpuacct`
    separate = {name for root in roots for name in root.name.split(",")}
    return separate | {name for names in unified for name in names} | _devices_by_program(roots)


def _devices_by_program(roots: list[Path]) -> set[str]:
    """Version 2 controls devices by a program, without a controller of that name."""
    return {"devices"} if any((root / "cgroup.controllers").exists() for root in roots) else set()
