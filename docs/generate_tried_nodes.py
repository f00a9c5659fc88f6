"""Writes the table of nodes in docs/install.md from docs/tried-nodes.json. Run by `make generate`; needs no node.

That file is kept by `make e2e RECORD=1` and `make e2e-machine RECORD=1`.
"""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from docs.tried_nodes import Row, from_json, page_with, to_json

PAGE = Path(__file__).parent / "install.md"
RESULTS = Path(__file__).parent / "tried-nodes.json"


def read() -> list[Row]:
    return from_json(json.loads(RESULTS.read_text(encoding="utf-8")))


@contextmanager
def locked() -> Iterator[None]:
    """Whoever reads them and writes them again does it alone: tests run side by side."""
    with RESULTS.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(rows: Sequence[Row]) -> None:
    """Keep these for the next `make generate`."""
    RESULTS.write_text(json.dumps(to_json(rows), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), read()), encoding="utf-8")


if __name__ == "__main__":
    main()
