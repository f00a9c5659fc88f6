"""What the library of container runtimes said about each case, and which version of it: python -m tests.oracle.cdi.table."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.cluster.build.binaries import find
from tests.oracle.cdi.cases import CASES, Case

PROGRAM: Final = "cdi-oracle"
TABLE: Final = Path(__file__).with_name("said.json")
LIBRARY: Final = "tags.cncf.io/container-device-interface"


def version(go_mod: Path) -> str:
    """Of the library, in a go.mod."""
    found = re.search(rf"^\s*(?:require )?{re.escape(LIBRARY)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    assert found, f"{go_mod} does not require {LIBRARY}"
    return found[1]


def ask(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """What the library says now, of each."""
    asked = [{path: {"text": f} if isinstance(f, str) else dict(f) for path, f in case.items()} for case in cases]
    program = find([PROGRAM])[PROGRAM]
    done = subprocess.run([program], input=json.dumps(asked).encode(), stdout=subprocess.PIPE, check=True, timeout=300)
    said: list[dict[str, Any]] = json.loads(done.stdout)
    return said


def table() -> dict[str, Any]:
    """Without the words of its errors, which name temporary files."""
    said = zip(CASES, ask([*CASES.values()]), strict=True)
    rows = {name: {"devices": found["devices"], "dropped": sorted(found["errors"])} for name, found in said}
    return {"library": f"{LIBRARY} {version(TABLE.with_name('go.mod'))}", "cases": rows}


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(), indent=1) + "\n")
