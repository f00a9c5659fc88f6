"""Records which jobs have passed on this exact tree, so that an interrupted run continues."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

# written by the tests that pass, with RECORD=1; and the page that `make generate` makes of it
_RECORDED: Final = ("docs/tried-nodes.json", "docs/install.md")


class Finished:
    """Stored in build/ci/finished.json under the tree's hash: any changed file invalidates all of it."""

    def __init__(self, file: Path, tree: str) -> None:
        self._file = file
        self._tree = tree
        try:
            kept = json.loads(file.read_text())
        except (OSError, ValueError):
            kept = {}
        self._names: list[str] = kept.get("names", []) if kept.get("tree") == tree else []

    @classmethod
    def of_tree(cls, root: Path) -> "Finished":
        """Raises subprocess.CalledProcessError if root is not a clone."""
        return cls(root / "build" / "ci" / "finished.json", tree_hash(root))

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names.append(name)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"tree": self._tree, "names": self._names}))


def tree_hash(root: Path) -> str:
    """Git's hash of all files that are not ignored, committed or not, but for what a run records.

    Raises subprocess.CalledProcessError.
    """
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        excluded = [f":(exclude){path}" for path in _RECORDED]
        added: list[str | Path] = ["git", "-C", root, "add", "--all", "--", ".", *excluded]
        subprocess.run(added, env=env, check=True, capture_output=True)
        done = subprocess.run(["git", "-C", root, "write-tree"], env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()
