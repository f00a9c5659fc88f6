"""The working tree and another commit's, each in a folder with a virtual environment of its own, made alike.

Edits during a run do not change the measurement. Neither side has compiled modules or a faster import path that the
other one lacks.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from msgspec import Struct

# code that a benchmark runs, and files that it reads
PRODUCT = ("charts", "cli", "common", "crds", "kube", "node-agent", "operator", "proto", "requirements")
BENCH = ("hack", "tests")
_PACKAGES = ("proto", "common", "kube", "operator", "node-agent", "cli")
_DEPENDENCIES = Path("requirements/dev.txt")
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


class TreeError(Exception):
    """A tree that cannot be measured; one line."""


class Tree(Struct, frozen=True):
    """path: the root. python: the interpreter that imports its packages."""

    path: Path
    python: Path


def commit_of(root: Path, name: str) -> str:
    """The commit's full hash. name: a branch, a tag or a hash. Raises TreeError."""
    return _git(
        root, f"commit {name!r} not found here", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"
    ).strip()


def add_worktree(root: Path, commit: str, path: Path) -> None:
    """Raises TreeError. remove_worktree() is the command that removes it."""
    _git(root, f"cannot check out {commit}", "worktree", "add", "--detach", str(path), commit)


def remove_worktree(root: Path, path: Path) -> list[str]:
    return ["git", "-C", str(root), "worktree", "remove", "--force", str(path)]


def copy_working_tree(root: Path, path: Path) -> None:
    """Copy the tree's current files, committed or not, without ignored ones. Raises TreeError."""
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PRODUCT, *BENCH)
    for name in set(_git(root, "cannot list files", *listing).split("\0")) - {""}:
        # deleted in the working tree
        if not os.path.lexists(root / name):
            continue
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, path / name, follow_symlinks=False)


def lay_over(path: Path, other: Path) -> None:
    """Replace the other tree's benchmarks and their helpers with this tree's."""
    for folder in BENCH:
        shutil.rmtree(other / folder, ignore_errors=True)
        shutil.copytree(path / folder, other / folder, symlinks=True)


def restore(path: Path) -> None:
    """Restore a worktree's committed benchmarks, after lay_over(). Raises TreeError."""
    for folder in BENCH:
        shutil.rmtree(path / folder, ignore_errors=True)
    _git(path, "cannot restore the benchmarks of the commit", "checkout", "--quiet", "HEAD", "--", *BENCH)


def digest(path: Path) -> str:
    """A digest of the names and contents of all files below a folder."""
    found = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        content = file.read_bytes()
        found.update(f"{file.relative_to(path)}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def has_same_dependencies(path: Path, other: Path) -> bool:
    return (path / _DEPENDENCIES).read_bytes() == (other / _DEPENDENCIES).read_bytes()


def prepare(path: Path, venv: Path, *, has_own_dependencies: bool) -> Tree:
    """Install the packages of a tree, and compile its modules. venv: target folder. Raises TreeError.

    has_own_dependencies: install the tree's locked ones; otherwise use the environment that runs this.
    """
    python = venv / "bin" / "python"
    if has_own_dependencies:
        run(path, sys.executable, "-m", "venv", str(venv))
        run(path, str(python), *_PIP, "--require-hashes", "-r", "requirements/pip.txt")
        run(path, str(python), *_PIP, "--no-compile", "--require-hashes", "-r", str(_DEPENDENCIES))
    else:
        run(path, sys.executable, "-m", "venv", "--without-pip", str(venv))
        ours = Path(sysconfig.get_path("purelib"))
        # Python reads .pth files of site folders only: the ones there, which name our own packages, are skipped
        (venv / ours.relative_to(sys.prefix) / "dependencies.pth").write_text(f"{ours}\n")
    # packages installed elsewhere under these names stay unchanged
    editable = [argument for package in _PACKAGES if (path / package).is_dir() for argument in ("-e", package)]
    run(path, str(python), *_PIP, "--ignore-installed", "--no-deps", "--no-build-isolation", *editable)
    compile_modules(python, path)
    return Tree(path, python)


def compile_modules(python: Path, path: Path) -> None:
    """Compile a tree's modules, and all that its interpreter may import. Uncompiled ones would be compiled at each
    start, in memory.

    A node's agent has compiled modules without docstrings; the other programs have them with docstrings.
    PYTHONDONTWRITEBYTECODE may be set here, and the first run would otherwise compile for the others.
    """
    folders = [str(path / folder) for folder in (*_PACKAGES, *BENCH) if (path / folder).is_dir()]
    # some libraries have files for other versions of Python, which cannot be compiled
    command = [
        str(python),
        "-m",
        "compileall",
        "-qq",
        "-j",
        "0",
        "-o",
        "0",
        "-o",
        "2",
        *folders,
        *_site_folders(python),
    ]
    subprocess.run(command, check=False)


def _site_folders(python: Path) -> list[str]:
    listing = [str(python), "-c", "import sys; print(*sys.path[1:], sep='\\n')"]
    found = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines()
    return [folder for folder in found if folder.endswith("site-packages")]


def _git(root: Path, problem: str, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise TreeError(f"{problem}: {_last_line(done.stderr)}" if done.stderr.strip() else problem)
    return done.stdout


def verify_imports(tree: Tree, module: str) -> None:
    """Raises TreeError when a module of the tree, or one that it imports, cannot be imported."""
    run(tree.path, str(tree.python), "-c", f"import {module}")


def run(folder: Path, *command: str) -> None:
    """Run a command in a folder. Raises TreeError."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TreeError(f"{' '.join(command)} ended with {done.returncode}: {_last_line(done.stderr)}")


def _last_line(output: str) -> str:
    return (output.strip().splitlines() or ["it printed nothing"])[-1]
