"""CDI specifications: our reader takes each device that the library of container runtimes takes, and no other.

tests/oracle/cdi/said.json has what the library said; tests/conformance/test_cdi_library.py asks it again.
"""

import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_agent.lib.cdi_files import CdiReading, conflicts, devices_of, read_files

from tests.cluster.build.pins import family_of
from tests.oracle.cdi.cases import CASES, Case
from tests.oracle.cdi.table import TABLE, version

SAID: Final[Mapping[str, Any]] = json.loads(TABLE.read_text())
PLACES: Final = {"etc": "etc/cdi", "run": "var/run/cdi"}


def lay(root: Path, case: Case) -> None:
    for name, file in case.items():
        directory, _, rest = name.partition("/")
        path = root / PLACES[directory] / rest
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(file, str):
            path.write_text(file, newline="")
        elif "link" in file:
            path.symlink_to(file["link"])
        elif "folder" in file:
            path.mkdir()
        else:
            path.write_bytes(b64decode(file["octets"]))


def taken(root: Path, case: Case) -> tuple[list[str], CdiReading]:
    """The names of all devices, sorted."""
    lay(root, case)
    reading = read_files(str(root), {})
    return sorted(f"{kind}={name}" for kind, name in devices_of(reading.files)), reading


@pytest.mark.parametrize("name", CASES)
def test_as_the_library_takes_it(tmp_path: Path, name: str) -> None:
    found, reading = taken(tmp_path, CASES[name])
    said = SAID["cases"][name]
    assert found == said["devices"]
    # and says of each file that the library drops, why
    with_problems = {path for path, file in reading.files.items() if file.problem}
    dropped = {
        tmp_path / name.replace("etc", "etc/cdi", 1).replace("run", "var/run/cdi", 1) for name in said["dropped"]
    }
    in_conflict = {path for paths in conflicts(reading.files).values() for path in paths}
    assert with_problems | in_conflict >= dropped - {tmp_path / place for place in PLACES.values()}
    assert len(reading.problems) >= len(with_problems)


def test_the_table_is_of_the_library_that_containerd_has() -> None:
    ours, containerds = (version(family_of(name).pinned_folder / "go.mod") for name in ("cdi-oracle", "containerd"))
    assert ours == containerds, "set it in tests/oracle/cdi/go.mod and run python -m tests.oracle.cdi.table"
    assert SAID["library"].endswith(f" {ours}")
    assert SAID["cases"].keys() == CASES.keys()


@pytest.mark.parametrize("key", ["deviceNodes", "mounts", "hooks", "netDevices"])
def test_an_entry_that_is_null_is_refused(tmp_path: Path, key: str) -> None:
    """The library does not go on with it."""
    edits = {"env": ["A=b"], key: [None]}
    text = json.dumps({"cdiVersion": "1.1.0", "kind": "v/c", "devices": [{"name": "a", "containerEdits": edits}]})
    found, reading = taken(tmp_path, {"etc/a.json": text})
    assert not found
    assert reading.problems == {f"{tmp_path}/etc/cdi/a.json: devices[0].containerEdits.{key}[0] is empty"}
