"""CDI specifications: device files by name, whatever else is in their directories."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib import cdi_files
from nodedevice_agent.lib.cdi_files import CdiFiles, devices_of, directories_at, read_files
from nodedevice_common.decoding import decode

KIND = "vendor.com/class"


def write(root: Path, name: str, *devices: tuple[str, str], kind: str = KIND, directory: str = "var/run/cdi") -> Path:
    """devices: name, and the path of its device file."""
    path = root / directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [{"name": each, "containerEdits": {"deviceNodes": [{"path": file}]}} for each, file in devices]
    path.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": listed}))
    return path


def read(root: Path, known: CdiFiles | None = None, *first: str) -> CdiFiles:
    return read_files(directories_at(str(root)), known or {}, first)[0]


def files_of(files: CdiFiles) -> dict[str, list[str]]:
    return {
        name: [node.path for node in device.container_edits.device_nodes]
        for (_, name), (_, device) in devices_of(files).items()
    }


def test_device_files_are_known_by_name(tmp_path: Path) -> None:
    write(tmp_path, "a.json", ("one", "/dev/one"), ("two", "/dev/two"))
    write(tmp_path, "b.json", ("one", "/dev/other"), kind="other.com/class")
    found = devices_of(read(tmp_path))
    assert {key: device.container_edits.device_nodes[0].path for key, (_, device) in found.items()} == {
        (KIND, "one"): "/dev/one",
        (KIND, "two"): "/dev/two",
        ("other.com/class", "one"): "/dev/other",
    }


def test_one_of_this_boot_goes_before_one_of_etc_and_two_of_one_directory_are_none(tmp_path: Path) -> None:
    write(tmp_path, "a.json", ("one", "/dev/old"), ("two", "/dev/a"), directory="etc/cdi")
    write(tmp_path, "b.json", ("two", "/dev/b"), directory="etc/cdi")
    write(tmp_path, "c.json", ("one", "/dev/new"))
    assert files_of(read(tmp_path)) == {"one": ["/dev/new"]}
    write(tmp_path, "d.json", ("two", "/dev/c"))
    assert files_of(read(tmp_path)) == {"one": ["/dev/new"], "two": ["/dev/c"]}


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", ("one", "/dev/one"))
    other = write(tmp_path, "b.json", ("two", "/dev/two"))
    before = read(tmp_path)
    write(tmp_path, "a.json", ("one", "/dev/changed"))
    os.utime(path, ns=(1, 1))
    after = read(tmp_path, before)
    assert after[other] is before[other]
    assert files_of(after)["one"] == ["/dev/changed"]


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": KIND},
        {"kind": KIND, "devices": [{"name": "one"}]},
        {"kind": KIND, "devices": [{"name": "one", "containerEdits": {"deviceNodes": []}}], "containerEdits": {}},
        {"kind": KIND, "devices": [{"name": "one", "unknown": [1]}], "annotations": {"a": "b"}},
    ],
)
def test_what_is_left_out_is_empty(tmp_path: Path, spec: dict[str, Any]) -> None:
    path = write(tmp_path, "a.json")
    path.write_text(json.dumps(spec))
    found, problems = read_files(directories_at(str(tmp_path)), {})
    assert not problems
    assert not any(files_of(found).values())


def test_ten_thousand_files_are_not_all_read_and_the_wanted_ones_are(tmp_path: Path) -> None:
    write(tmp_path, "0.json")
    for number in range(10_000):
        (tmp_path / "var/run/cdi" / f"a{number:05}.json").touch()
    write(tmp_path, "vendor.com-class_z.json", ("one", "/dev/one"))
    found = read(tmp_path, None, "vendor.com")
    assert len(found) == cdi_files.MAX_FILES
    assert files_of(found) == {"one": ["/dev/one"]}


def test_a_spec_of_a_hundred_megabytes_is_read_no_further_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "a.json", ("one", "/dev/one"))
    os.truncate(path, 100_000_000)
    write(tmp_path, "b.json", ("two", "/dev/two"))
    sizes: list[int] = []

    def counted(octets: bytes, form: Any) -> Any:
        sizes.append(len(octets))
        return decode(octets, form)

    monkeypatch.setattr(cdi_files, "decode", counted)
    found, problems = read_files(directories_at(str(tmp_path)), {})
    assert files_of(found) == {"two": ["/dev/two"]}
    assert max(sizes) < 1000
    assert [problem.rpartition(": ")[2] for problem in problems] == [f"bigger than {cdi_files.MAX_BYTES} bytes"]


def test_all_files_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = write(tmp_path, "a.json", ("one", "/dev/one")).stat().st_size
    for name in "bcd":
        write(tmp_path, f"{name}.json", ("two", "/dev/one"), kind=f"{name}.com/class")
    monkeypatch.setattr(cdi_files, "MAX_BYTES_OF_ALL", 2 * size + 8)
    found, problems = read_files(directories_at(str(tmp_path)), {})
    assert sum(bool(file.devices) for file in found.values()) == 2
    assert len(problems) == 2
    assert read_files(directories_at(str(tmp_path)), found)[0] == found
    (tmp_path / "var/run/cdi/a.json").unlink()
    (tmp_path / "var/run/cdi/b.json").unlink()
    assert len(files_of(read(tmp_path, found))) == 1
    assert not read_files(directories_at(str(tmp_path)), found)[1]
