"""CDI specifications: device files by name, whatever else is in their directories."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib import cdi_files
from nodedevice_agent.lib.cdi_files import (
    CdiDevice,
    CdiEdits,
    CdiFile,
    CdiFiles,
    CdiNode,
    devices_of,
    directories_at,
    read_files,
)
from nodedevice_agent.lib.filesystem import FileIdentity
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
    # of the same time, but not of the same size
    write(tmp_path, "a.json", ("one", "/dev/one-more-time"))
    os.utime(path, ns=(1, 1))
    assert files_of(read(tmp_path, after))["one"] == ["/dev/one-more-time"]


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
    folder, limit = tmp_path / "var/run/cdi", f"all files have more than {2 * size + 8} bytes"
    assert problems == {f"{folder}/{name}.json: {limit}" for name in "cd"}
    assert read_files(directories_at(str(tmp_path)), found)[0] == found
    (tmp_path / "var/run/cdi/a.json").unlink()
    (tmp_path / "var/run/cdi/b.json").unlink()
    assert len(files_of(read(tmp_path, found))) == 1
    assert not read_files(directories_at(str(tmp_path)), found)[1]


def test_a_file_that_grows_while_it_is_read_is_read_up_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of the kernel do, whose size is zero."""
    (tmp_path / "a.json").symlink_to("/proc/version")
    monkeypatch.setattr(cdi_files, "MAX_BYTES", 8)
    found, problems = read_files([tmp_path], {})
    assert [file.problem for file in found.values()] == ["bigger than 8 bytes"]
    assert problems == {f"{tmp_path}/a.json: bigger than 8 bytes"}


def test_the_directories_are_those_of_the_host() -> None:
    assert directories_at("/") == (Path("/etc/cdi"), Path("/var/run/cdi"))
    assert directories_at("/host/") == (Path("/host/etc/cdi"), Path("/host/var/run/cdi"))


def identity_of(path: Path) -> FileIdentity:
    status = path.stat()
    return FileIdentity(status.st_dev, status.st_ino, status.st_mtime_ns)


JSON = """{
\t"cdiVersion": "0.6.0", "kind": "vendor.com/class", "containerEdits": {"env": ["A=b"]},
\t"devices": [{"name": "one", "containerEdits": {"deviceNodes": [
\t\t{"path": "/dev/one", "hostPath": "/dev/1", "type": "c", "major": 7, "minor": 1}]}}]
}"""
YAML = """cdiVersion: 0.6.0
kind: vendor.com/class
containerEdits: {env: [A=b]}
devices:
- name: one
  containerEdits:
    deviceNodes: [{path: /dev/one, hostPath: /dev/1, type: c, major: 7, minor: 1}]
"""


@pytest.mark.parametrize(("name", "text"), [("a.json", JSON), ("a.yaml", YAML)])
def test_all_that_a_file_says_is_kept(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    nodes = [CdiNode("/dev/one", "/dev/1", "c", 7, 1)]
    devices = [CdiDevice("one", CdiEdits(device_nodes=nodes))]
    expected = CdiFile(identity_of(path), len(text), KIND, devices, CdiEdits(["A=b"]))
    assert read_files([tmp_path], {}) == ({path: expected}, frozenset())


def test_what_is_wrong_with_a_file_is_kept_with_it_and_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("nowhere")
    (tmp_path / "b.json").write_text("{kind")
    os.mkfifo(tmp_path / "c.json")
    (tmp_path / "d.json").touch()
    os.truncate(tmp_path / "d.json", cdi_files.MAX_BYTES + 1)
    (tmp_path / "e.json").write_text(JSON)
    found, problems = read_files([tmp_path], {})
    wrong = {
        "b.json": (5, "JSON is malformed: object keys must be strings (byte 1)"),
        "c.json": (0, "not a regular file"),
        "d.json": (0, f"bigger than {cdi_files.MAX_BYTES} bytes"),
    }
    shown = {path: file for path, file in found.items() if path.name != "e.json"}
    assert shown == {
        tmp_path / name: CdiFile(identity_of(tmp_path / name), size, problem=problem)
        for name, (size, problem) in wrong.items()
    }
    assert [*found] == [tmp_path / f"{name}.json" for name in "bcde"]
    absent = f"{tmp_path}/a.json: No such file or directory"
    assert problems == {absent, *(f"{tmp_path}/{name}: {problem}" for name, (_, problem) in wrong.items())}


def test_of_a_directory_the_wanted_files_come_first_each_in_order(tmp_path: Path) -> None:
    for name in ("k", "b", "z", "a", "y", "x", "c"):
        (tmp_path / f"{name}.json").write_text(JSON)
    (tmp_path / "other.txt").touch()
    (tmp_path / os.fsdecode(b"\xff.json")).touch()
    found, problems = read_files([tmp_path], {}, ("y", "x"))
    assert [path.stem for path in found] == ["x", "y", "a", "b", "c", "k", "z"]
    assert problems == set()


def test_bounds_are_the_last_that_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.json", ("one", "/dev/one"), ("two", "/dev/two"))
    monkeypatch.setattr(cdi_files, "MAX_BYTES", path.stat().st_size)
    monkeypatch.setattr(cdi_files, "_MAX_DEVICES", 1)
    before = read(tmp_path)
    assert [device.name for device in before[path].devices] == ["one"]
    # it is not read again
    assert read(tmp_path, before)[path] is before[path]
    for name in ("b.json", "c.json"):
        (path.parent / name).touch()
    monkeypatch.setattr(cdi_files, "_MAX_ENTRIES", 2)
    assert len(read(tmp_path)) == 2


def test_a_file_is_opened_so_that_nothing_waits_and_no_child_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[object, int]] = []
    descriptors: list[int] = []

    def noted(path: Path, flags: int) -> int:
        opened.append((path, flags))
        descriptors.append(real(path, flags))
        return descriptors[-1]

    real = os.open
    path = write(tmp_path, "a.json")
    monkeypatch.setattr(os, "open", noted)
    known = read(tmp_path)
    assert opened == [(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)]
    # and it is closed, whatever it is
    os.mkfifo(path.with_name("b.json"))
    os.mknod(path.with_name("c.json"))
    os.truncate(path.with_name("c.json"), cdi_files.MAX_BYTES + 1)
    read(tmp_path, known)
    assert len(descriptors) == 4
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
