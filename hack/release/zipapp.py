"""`kubectl-nodedevice.pyz`: the program for people in one file, for any Python from 3.11 on. `make cli` and `make release`
make it.

    python -m hack.release.zipapp [--target build/kubectl-nodedevice.pyz]

It has the source of `cli/` and `kube/`, and of the installed libraries, by the hashes of requirements/cli.txt. Its bytes
depend on these alone.
"""

import argparse
import hashlib
import importlib.metadata
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from hack.release.errors import ReleaseError
from hack.release.zips import zipped

ROOT: Final = Path(__file__).parents[2]
LIBRARY: Final = "kubectl-nodedevice"
NAME: Final = f"{LIBRARY}.pyz"
_START: Final = Path(__file__).with_name("zipapp_start.py")
# The script that the system starts. It uses only the user's Python: nothing of the working directory, and no PYTHONPATH.
# Until its first line, Python would print a traceback at Ctrl-C, so it is ignored until then.
_HEAD: Final = b"""#!/bin/sh
trap '' INT
exec python3 -I "$0" "$@"
"""
# Small, as Python compiles it at each start. From its second line on, Ctrl-C ends the program silently.
_MAIN: Final = b"""import _signal
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)
from zipapp_start import main
main()
"""
# rich uses these to colour source code and Markdown, which this program does not show
_LEFT_OUT: Final = frozenset({"markdown-it-py", "mdurl", "pygments"})
_PINNED: Final = re.compile(r"^([A-Za-z0-9_.-]+)==([^ \\]+)", re.MULTILINE)


def write(root: Path, target: Path) -> None:
    """Make the file from `root`. Raises ReleaseError."""
    files = dict(sorted(_content(root)))
    content = hashlib.sha256(b"".join(_framed(name, data) for name, data in files.items())).hexdigest()[:32]
    files["zipapp_start.py"] = _START.read_bytes().replace(b"@CONTENT@", content.encode())
    files["__main__.py"] = _MAIN
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_HEAD + zipped({name: (data, 0o644) for name, data in files.items()}))
    target.chmod(0o755)


def libraries(root: Path) -> Mapping[str, str]:
    """Versions by name of its libraries."""
    pinned = _PINNED.findall((root / "requirements/cli.txt").read_text(encoding="utf-8"))
    return {name: version for name, version in pinned if name.lower() not in _LEFT_OUT}


def _framed(name: str, data: bytes) -> bytes:
    return b"%d %d " % (len(name), len(data)) + name.encode() + data


def _content(root: Path) -> Iterator[tuple[str, bytes]]:
    """Names and content of all files, without the files that run first."""
    for source in (root / "cli/src", root / "kube/src"):
        for file in source.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(source).as_posix(), file.read_bytes()
    for name, version in libraries(root).items():
        yield from _library(name, version)


def _library(name: str, version: str) -> Iterator[tuple[str, bytes]]:
    """Its modules in Python, and its licence. Raises ReleaseError if another version is installed."""
    found = importlib.metadata.distribution(name)
    if found.version != version:
        raise ReleaseError(
            f"{name} {found.version} is installed, and requirements/cli.txt has {version}", "run `make setup`"
        )
    for file in found.files or ():
        is_module = file.suffix == ".py" and ".." not in file.parts
        is_licence = "licenses" in file.parts or file.name.upper().startswith(("LICENSE", "COPYING"))
        if is_module or is_licence:
            yield file.as_posix(), Path(str(found.locate_file(file))).read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make cli", description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "build" / NAME)
    target = parser.parse_args().target
    write(ROOT, target)
    print(f"{target}: put it into PATH as kubectl-nodedevice")


if __name__ == "__main__":
    main()
