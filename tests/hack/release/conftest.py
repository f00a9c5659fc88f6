"""A clone of the project as it is in the working tree, committed: what a release is made of."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_COMMIT = ("-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message=test")


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one commit with every file that git knows or would know."""
    clone = tmp_path_factory.mktemp("project")
    listing = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listing, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if name and (_ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((_ROOT / name).read_bytes())
    for command in (("init", "--quiet"), ("add", "--all"), _COMMIT):
        subprocess.run(["git", *command], cwd=clone, check=True)
    return clone


@pytest.fixture
def changed(project: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    """Clone the project, change one file and do not commit it."""

    def change(name: str, text: str) -> Path:
        clone = tmp_path / "changed"
        subprocess.run(["git", "clone", "--quiet", str(project), str(clone)], check=True)
        (clone / name).write_text(text)
        return clone

    return change
