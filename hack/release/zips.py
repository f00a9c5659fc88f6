"""Writes zip archives whose bytes depend on the files alone."""

import io
import zipfile
from collections.abc import Mapping
from typing import Final

# the oldest time in a zip
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE: Final = 0o100000


def zipped(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """files: content and mode by name."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, (content, mode) in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.external_attr = (_REGULAR_FILE | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return made.getvalue()
