"""Python's byte code for an image whose file system is read-only: uncompiled modules would be compiled at each start,
for seconds.

Equal sources give equal bytes: no times. Debian compiles its standard library at installation, and ours is only
unpacked.
"""

import compileall
import py_compile
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WITH_DOCSTRINGS: Final = 0
WITHOUT_DOCSTRINGS: Final = 2


def compile_folder(folder: Path, seen_as: str, levels: Sequence[int] = (WITH_DOCSTRINGS,)) -> None:
    """seen_as: the folder's path in the image. levels: of optimization. This Python must have the image's release."""
    for level in levels:
        compileall.compile_dir(
            str(folder),
            quiet=2,
            stripdir=str(folder),
            prependdir=seen_as,
            optimize=level,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )


def compile_standard_library(root: Path) -> None:
    """Compile the standard library in an image's root file system, if this Python has the same release."""
    ours = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = root / "usr/lib" / ours
    if (library / "os.py").exists():
        compile_folder(library, f"/usr/lib/{ours}", (WITH_DOCSTRINGS, WITHOUT_DOCSTRINGS))
