"""Golden files: bytes as they were when the file was made. A long text is kept as its hash.

`GOLDEN=write make unit` writes them; whoever does so means each line of the diff.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

_LONGEST: Final = 16 * 1024


def check(folder: Path, name: str, octets: bytes, ending: str = "json", longest: int = _LONGEST) -> None:
    """Fails where the octets are not those of the file of that name. longest: that is kept as it is."""
    is_long = len(octets) > longest
    file = folder / (f"{name}.sha256" if is_long else f"{name}.{ending}")
    shown = f"{hashlib.sha256(octets).hexdigest()} {len(octets)}".encode() if is_long else octets
    if os.environ.get("GOLDEN") == "write":
        folder.mkdir(exist_ok=True)
        file.write_bytes(shown + b"\n")
    assert shown + b"\n" == file.read_bytes()


def names(folder: Path) -> set[str]:
    """Of which there are files."""
    return {file.stem for file in folder.iterdir()}
