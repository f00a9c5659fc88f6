"""Reads whether an option of the CRI is set in a container runtime's configuration file, or in the files that it includes.

Source: containerd cmd/containerd/server/config/config.go, LoadConfig @ v2.4.2: imports, relative to the importing file, are
merged over it, but false does not replace true; each version of the format names the CRI plugin differently. CRI-O pkg/config
@ v1.34: files of the directory next to it, in the order of their names; the last one counts.
"""

import glob
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

_MAX_FILES = 64
_MAX_BYTES = 512 * 1024
# tables with the options of the CRI: containerd's plugin in version 3, 2 and 1; CRI-O
_TABLES = (
    ("plugins", "io.containerd.cri.v1.runtime"),
    ("plugins", "io.containerd.grpc.v1.cri"),
    ("plugins", "cri"),
    ("crio", "runtime"),
)
_CRIO = "crio.conf"


class ConfigUnreadable(Exception):
    """The message names the file."""


def is_set(file: Path, option: str) -> bool:
    """Whether the option is true. Raises ConfigUnreadable, also if the files do not exist."""
    documents = list(_documents(file))
    if not documents:
        raise ConfigUnreadable(f"{file} does not exist here: is its directory mounted in the agent?")
    found = [table[option] for document in documents for table in _tables(document) if option in table]
    return found[-1:] == [True] if file.name == _CRIO else True in found


def _tables(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for path in _TABLES:
        table: Any = document
        for key in path:
            table = table.get(key) if isinstance(table, dict) else None
        if isinstance(table, dict):
            yield table


def _documents(file: Path) -> Iterator[Mapping[str, Any]]:
    """Yield each file once, in the runtime's order, up to a bound."""
    pending, seen, left = [*([file] if os.path.isfile(file) else ()), *_drop_ins(file)], set[Path](), _MAX_BYTES
    while pending:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        content = _content(path, left)
        left -= len(content)
        if len(seen) > _MAX_FILES:
            raise ConfigUnreadable(f"{file} includes more than {_MAX_FILES} files")
        document = _parsed(path, content)
        yield document
        pending += _imports(path, document.get("imports"))


def _drop_ins(file: Path) -> list[Path]:
    """Return the files of CRI-O's drop-in directory, or of containerd's, which containerd only reads without a main file."""
    if file.name == _CRIO:
        return _matches(f"{glob.escape(str(file))}.d/*")
    return [] if os.path.isfile(file) else _matches(f"{glob.escape(str(file.parent))}/conf.d/*.toml")


def _imports(parent: Path, patterns: object) -> Iterator[Path]:
    for pattern in [each for each in patterns if isinstance(each, str)] if isinstance(patterns, list) else ():
        path = parent.parent / pattern
        if "*" in pattern:
            yield from _matches(str(path))
        elif os.path.isfile(path):
            yield path
        else:
            raise ConfigUnreadable(f"{path}, which {parent} imports, does not exist here: is its directory mounted?")


def _matches(pattern: str) -> list[Path]:
    """Return the matching files, sorted, without directories."""
    return sorted(map(Path, filter(os.path.isfile, islice(glob.iglob(pattern), _MAX_FILES + 1))))


def _content(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(limit + 1)
    except OSError as exc:
        raise ConfigUnreadable(f"{path} cannot be read: {exc.strerror}") from exc
    if len(content) > limit:
        raise ConfigUnreadable(f"{path} and the files before it are longer than {_MAX_BYTES} bytes")
    return content


def _parsed(path: Path, content: bytes) -> Mapping[str, Any]:
    # most agents never see such a file, and save the memory
    import tomllib

    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as exc:
        raise ConfigUnreadable(f"{path} is not valid TOML: {exc}") from exc
