"""CDI specifications: device files by name, whatever else is in their directories."""

import json
import os
from pathlib import Path

import pytest
from nodedevice_agent.lib import cdi_files
from nodedevice_agent.lib.cdi_files import CdiFile, CdiFiles, CdiReading, devices_of, read_files
from nodedevice_agent.lib.cdi_specification import CdiDevice, CdiEdits, CdiNode

KIND = "vendor.com/class"


def write(root: Path, name: str, *devices: tuple[str, str], kind: str = KIND, directory: str = "var/run/cdi") -> Path:
    """devices: name, and the path of its device file."""
    path = root / directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [{"name": each, "containerEdits": {"deviceNodes": [{"path": file}]}} for each, file in devices]
    path.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": listed}))
    return path


def read(root: Path, known: CdiFiles | None = None, *kinds: str) -> CdiFiles:
    return read_files(str(root), known or {}, kinds).files


def files_of(files: CdiFiles) -> dict[str, list[str]]:
    return {
        name: [node.path for node in device.container_edits.device_nodes]
        for (_, name), (_, device) in devices_of(files).items()
    }


def test_one_of_this_boot_goes_before_one_of_etc_and_two_of_one_directory_are_none(tmp_path: Path) -> None:
    write(tmp_path, "a.json", ("one", "/dev/old"), ("two", "/dev/a"), directory="etc/cdi")
    write(tmp_path, "b.json", ("two", "/dev/b"), directory="etc/cdi")
    write(tmp_path, "c.json", ("one", "/dev/new"))
    assert files_of(read(tmp_path)) == {"one": ["/dev/new"]}
    # the library of container runtimes drops such a name of the other directory, too
    write(tmp_path, "d.json", ("two", "/dev/c"))
    assert files_of(read(tmp_path)) == {"one": ["/dev/new"]}


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


def test_ten_thousand_files_are_not_all_read_and_the_wanted_ones_are(tmp_path: Path) -> None:
    write(tmp_path, "0.json")
    for number in range(10_000):
        (tmp_path / "var/run/cdi" / f"a{number:05}.json").touch()
    write(tmp_path, "vendor.com-class_z.json", ("one", "/dev/one"))
    found = read_files(str(tmp_path), {}, [KIND])
    assert len(found.files) == cdi_files.MAX_FILES
    assert files_of(found.files) == {"one": ["/dev/one"]}
    assert found.unread == f"/var/run/cdi: it has more than {cdi_files.MAX_FILES} files"


def test_all_files_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = write(tmp_path, "a.json", ("one", "/dev/one")).stat().st_size
    for name in "bcd":
        write(tmp_path, f"{name}.json", ("two", "/dev/one"), kind=f"{name}.com/class")
    monkeypatch.setattr(cdi_files, "MAX_BYTES_OF_ALL", 2 * size + 8)
    reading = read_files(str(tmp_path), {})
    found = reading.files
    assert sum(bool(file.devices) for file in found.values()) == 2
    limit = f"all files have more than {2 * size + 8} bytes"
    assert reading.problems == {f"{tmp_path}/var/run/cdi/{name}.json: {limit}" for name in "cd"}
    assert read_files(str(tmp_path), found).files == found
    (tmp_path / "var/run/cdi/a.json").unlink()
    (tmp_path / "var/run/cdi/b.json").unlink()
    assert len(files_of(read(tmp_path, found))) == 1
    assert not read_files(str(tmp_path), found).problems


def _aliased(root: Path, name: str, devices: int) -> None:
    """A file in which each of its devices repeats 300 device files."""
    nodes = ",".join(f"{{path: /{number}}}" for number in range(300))
    listed = "".join(f"- {{name: d{number}, containerEdits: {{deviceNodes: *n}}}}\n" for number in range(devices))
    text = f"containerEdits: {{deviceNodes: &n [{nodes}]}}\ndevices:\n{listed}"
    (root / "var/run/cdi" / name).write_text(f"cdiVersion: 0.6.0\nkind: {name}/class\n{text}")


def test_values_of_all_files_together_have_a_bound_with_what_aliases_repeat(tmp_path: Path) -> None:
    write(tmp_path, "a.json", ("one", "/dev/one"))
    for name in ("b.yaml", "c.yaml", "d.yaml"):
        _aliased(tmp_path, name, 130)
    write(tmp_path, "z.json", ("two", "/dev/two"), kind="z.com/class")
    reading = read_files(str(tmp_path), {})
    kinds = {file.kind: len(file.devices) for file in reading.files.values() if file.devices}
    assert kinds == {KIND: 1, "b.yaml/class": 130, "z.com/class": 1}
    limit = f"all files have more than {cdi_files.MAX_VALUES_OF_ALL} values"
    assert reading.problems == {f"{tmp_path}/var/run/cdi/{name}.yaml: {limit}" for name in "cd"}
    assert reading.unread == f"/var/run/cdi/c.yaml: {limit}"
    (tmp_path / "var/run/cdi/b.yaml").unlink()
    assert {kind for kind, _ in devices_of(read(tmp_path, reading.files))} == {KIND, "c.yaml/class", "z.com/class"}


JSON = """{
\t"cdiVersion": "0.6.0", "kind": "vendor.com/class", "containerEdits": {"env": ["A=b"],
\t\t"mounts": [{"hostPath": "/l", "containerPath": "/c", "type": "none", "options": ["rbind"]},
\t\t\t{"hostPath": "tmp", "containerPath": "/t", "type": "tmpfs"}],
\t\t"hooks": [{"hookName": "createRuntime", "path": "/h"}, {"hookName": "startContainer", "path": "/i"}]},
\t"devices": [{"name": "one", "containerEdits": {"deviceNodes": [
\t\t{"path": "/dev/one", "hostPath": "/dev/1", "type": "c", "major": 7, "minor": 1}]}}]
}"""
YAML = """cdiVersion: 0.6.0
kind: vendor.com/class
containerEdits:
  env: [A=b]
  mounts: [{hostPath: /l, containerPath: /c}]
  hooks: [{hookName: poststart, path: /h}, {hookName: poststop, path: /i}]
devices:
- name: one
  containerEdits:
    deviceNodes: [{path: /dev/one, hostPath: /dev/1, type: c, major: 7, minor: 1}]
"""


@pytest.mark.parametrize(("name", "text"), [("a.json", JSON), ("a.yaml", YAML)])
def test_what_matters_of_a_file_is_kept(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, name, directory="etc/cdi")
    path.write_text(text)
    nodes = (CdiNode("/dev/one", "/dev/1", "c", 7, 1),)
    devices = (CdiDevice("one", CdiEdits(device_nodes=nodes)),)
    found = read_files(str(tmp_path), {})
    its, edits = found.files[path], CdiEdits(("A=b",), mounts=("/l",), hooks=("/h",))
    assert found == CdiReading({path: CdiFile(its.identity, len(text), KIND, devices, edits, values=its.values)})


def test_what_is_wrong_with_a_file_is_kept_with_it_and_hides_no_other(tmp_path: Path) -> None:
    here = tmp_path / "etc/cdi"
    here.mkdir(parents=True)
    (here / "a.json").symlink_to("nowhere")
    (here / "b.json").write_text("{kind")
    os.mkfifo(here / "c.json")
    (here / "d.json").touch()
    os.truncate(here / "d.json", cdi_files.MAX_BYTES + 1)
    (here / "e.json").write_text(JSON)
    found = read_files(str(tmp_path), {})
    assert {path.name: file.problem.partition(" in ")[0] for path, file in found.files.items()} == {
        "a.json": "No such file or directory",
        "b.json": "while parsing a flow mapping",
        "c.json": "not a regular file",
        "d.json": f"bigger than {cdi_files.MAX_BYTES} bytes",
        "e.json": "",
    }
    assert found.problems == {f"{p}: {file.problem}" for p, file in found.files.items() if file.problem}
    # a runtime waits for what a FIFO holds, and may have the memory for a big file
    assert [path.name for path, file in found.files.items() if file.is_unread] == ["c.json", "d.json"]
    assert found.unread == "/etc/cdi/c.json: not a regular file"


@pytest.mark.parametrize(
    ("name", "text", "kinds", "is_wanted"),
    [
        ("a.json", '{"kind": "vendor.com/class", "x": 1}', [KIND], True),
        ("a.json", r'{"kind": "vendor.com\/class"}', [KIND], True),
        ("a.json", '{"kind": "k8s.vendor.com/class", "x": 1}', [KIND], False),
        ("a.json", '{"kind": "vendor.com/classes", "x": 1}', [KIND], False),
        ("a.json", '{"kind": "vendor.com/class", "x": 1}', ["other.com/class"], False),
        ("a.json", '{"kind": "vendor.com/class", "x": 1}', [], False),
        ("vendor.yaml", None, [KIND], True),
        ("other.yaml", None, [KIND], False),
    ],
)
def test_a_dropped_file_may_be_of_a_wanted_kind(
    tmp_path: Path, name: str, text: str | None, kinds: list[str], is_wanted: bool
) -> None:
    path = write(tmp_path, name)
    if text is None:
        path.unlink()
        path.symlink_to("nowhere")
    else:
        path.write_text(text)
    found = read_files(str(tmp_path), {}, kinds)
    assert found.wanted == (tuple(each.removeprefix(str(tmp_path)) for each in found.problems) if is_wanted else ())
    assert read_files(str(tmp_path), found.files, kinds) == found


def test_a_directory_that_cannot_be_read_hides_those_after_it_alone(tmp_path: Path) -> None:
    write(tmp_path, "a.json", ("one", "/dev/one"), directory="etc/cdi")
    (tmp_path / "var/run").mkdir(parents=True)
    (tmp_path / "var/run/cdi").touch()
    found = read_files(str(tmp_path), {})
    assert files_of(found.files) == {"one": ["/dev/one"]}
    assert found.unread == "/var/run/cdi: Not a directory"
    assert found.problems == {f"{tmp_path}{found.unread}"}


def test_links_are_those_of_the_host(tmp_path: Path) -> None:
    """As /var/run is one, and as a file of /etc/cdi may be; not those of the agent's own files."""
    path = write(tmp_path, "a.json", ("one", "/dev/one"), directory="run/cdi")
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    write(tmp_path, "b.json", directory="etc/cdi").unlink()
    (tmp_path / "etc/cdi/b.json").symlink_to("/srv/../srv/spec")
    write(tmp_path, "spec", ("two", "/dev/two"), directory="srv")
    assert files_of(read(tmp_path)) == {"two": ["/dev/two"], "one": ["/dev/one"]}
    path.unlink()
    path.symlink_to("a.json")
    (file,) = [file for path, file in read(tmp_path).items() if path.name == "a.json"]
    assert "Too many levels" in file.problem


def test_an_agent_in_a_pod_cannot_know_what_a_link_leads_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.json", directory="etc/cdi").unlink()
    (tmp_path / "etc/cdi/a.json").symlink_to("/run/nvidia/spec.json")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert not read_files(str(tmp_path), {}).unread
    monkeypatch.setattr(cdi_files, "sees_all", lambda root: False)
    assert read_files(str(tmp_path), {}).unread == "/etc/cdi/a.json: No such file or directory"


@pytest.mark.parametrize(
    ("devices", "variables", "what"),
    [(4097, 1, "4096 devices"), (1, 100_001, "100000 values")],
    ids=["devices", "values"],
)
def test_a_file_with_more_than_is_read_counts_as_unread(
    tmp_path: Path, devices: int, variables: int, what: str
) -> None:
    """A runtime reads it, and another file of the directory may have a name of it."""
    path = write(tmp_path, "a.json", *((f"d{number}", "/dev/x") for number in range(devices)))
    path.write_text(json.dumps({**json.loads(path.read_text()), "containerEdits": {"env": ["X=y"] * variables}}))
    found = read_files(str(tmp_path), {})
    assert found.unread == f"/var/run/cdi/a.json: it has more than {what}"
    assert (found.files[path].is_unread, found.files[path].devices) == (True, ())


def test_no_file_stays_open(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json")
    os.mkfifo(path.with_name("b.json"))
    path.with_name("c.json").touch()
    os.truncate(path.with_name("c.json"), cdi_files.MAX_BYTES + 1)
    before = len(os.listdir("/proc/self/fd"))
    read(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
