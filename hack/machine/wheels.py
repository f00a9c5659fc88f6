"""The agent's dependencies as wheels for a machine without a network: its locked requirements, for the guest's Python.

Downloaded once for these requirements, and kept in the user's cache folder.
"""

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from hack.machine.packages import run
from tests.cluster.build.cache import cache_folder

_REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "agent.txt"
# the guest's Debian, with its C library
_FOR = ("--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64")


def agent_wheels(progress: Callable[[str], None]) -> Path:
    """Folder of the wheels. Raises BinaryError with pip's message if they cannot be downloaded."""
    key = hashlib.sha256("\0".join([_REQUIREMENTS.read_text(), *_FOR]).encode()).hexdigest()[:12]
    folder = cache_folder() / "machines" / f"wheels-{key}"
    if not folder.exists():
        progress("machine: wheels of the agent's dependencies")
        unfinished = folder.with_name(f".{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
        ]
        run([*pip, *_FOR, "--platform", "any", "--dest", str(unfinished), "--requirement", str(_REQUIREMENTS)])
        unfinished.replace(folder)
    return folder
