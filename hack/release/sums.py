"""SHA256SUMS as sha256sum writes and checks it: `sha256sum --check SHA256SUMS` in the folder."""

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write(folder: Path) -> None:
    """Write the sums of all files of a folder, sorted by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    lines = (f"{digest(path)}  {path.relative_to(folder)}\n" for path in files)
    (folder / NAME).write_text("".join(lines))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
