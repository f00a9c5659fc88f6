"""A clone of the project as it is in the working tree, committed: what a release is made of."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hack.release.committed import committed_copy


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one commit with every file that git knows or would know."""
    return committed_copy(tmp_path_factory.mktemp("project"))


@pytest.fixture
def changed(project: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    """Clone the project, change one file and do not commit it."""

    def change(name: str, text: str) -> Path:
        clone = tmp_path / "changed"
        subprocess.run(["git", "clone", "--quiet", str(project), str(clone)], check=True)
        (clone / name).write_text(text)
        return clone

    return change
