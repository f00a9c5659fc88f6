"""The sources of a release: the commit that is checked out, without other files of the folder."""

import subprocess
import tarfile
from pathlib import Path

from hack.release.errors import ReleaseError


def check_clean(root: Path) -> None:
    """Raise ReleaseError if files differ from the commit, or are unknown to it."""
    changed = git(root, "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(
            f"{len(changed)} files differ from the commit, such as {changed[0][3:]}", "commit or stash them"
        )


def commit(root: Path) -> str:
    """The commit that is released."""
    return git(root, "rev-parse", "HEAD").strip()


def commit_time(root: Path) -> int:
    """Time of the commit in seconds since 1970: SOURCE_DATE_EPOCH of all builds."""
    return int(git(root, "log", "-1", "--format=%ct"))


def export(root: Path, folder: Path) -> Path:
    """Write the commit's files into a new folder, which is returned."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    git(root, "archive", "--format=tar", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()
    return folder


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReleaseError(f"git {arguments[0]} failed ({done.stderr.strip()})", "release from a clone of the project")
    return done.stdout
