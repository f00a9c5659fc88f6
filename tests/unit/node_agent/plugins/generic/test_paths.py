"""Paths that match no file, not all files of a device, or something else than a device file; and optional ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.deviceplugin_server.built_in import UnmatchedGroups

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic import sources
from tests.unit.node_agent.plugins.generic.sources import settings_of, source_of

TWO = sources.paths("/dev/ttyUSB0"), sources.paths("/dev/ttyACM*")


def files(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path[1:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to("/dev/null")


def below_dev(names: str) -> list[str]:
    return [f"/dev/{name}" for name in names.split()]


def test_a_path_that_is_not_there_is_named_until_it_is(tmp_path: Path) -> None:
    source = source_of(tmp_path, *TWO)
    reason, message = source.devices.trouble
    assert reason == "NoMatch"
    assert "/dev/ttyUSB0, /dev/ttyACM*: connect the device, or correct the path" in message
    FakeSysfs(tmp_path).dongle("1-1", 0)
    source.refresh()
    assert len(source.devices.latest) == 1
    assert source.devices.trouble == ("", "")


def test_groups_without_a_device_are_noted_and_unknown_once_settings_change(tmp_path: Path) -> None:
    found = UnmatchedGroups()
    changes: list[dict[str, Sequence[int]]] = []
    found.changed = lambda: changes.append(dict(found.by_resource))
    source = source_of(tmp_path, *TWO)
    source.note_unmatched = found.note
    source.refresh()
    source.refresh()
    FakeSysfs(tmp_path).dongle("1-1", 0)
    source.refresh()
    source.reconfigure(settings_of(sources.paths("/dev/other")))
    assert [each.get("example.com/x") for each in changes] == [(0, 1), (1,), None]


SOUND = "snd/controlC0 snd/pcmC0D0p snd/pcmC0D7p snd/timer"
WITHOUT_CONTROL, CONTROL_PCM = SOUND.partition(" ")[2], "snd/controlC0 snd/pcmC0D0p"


@pytest.mark.parametrize(
    ("paths", "present", "listed", "lacking"),
    [
        pytest.param(SOUND, CONTROL_PCM, "", "/dev/snd/controlC0 lacks /dev/snd/pcmC0D7p, /dev/snd/timer:", id="paths"),
        pytest.param(SOUND, WITHOUT_CONTROL, "", "/dev/snd/pcmC0D0p lacks /dev/snd/controlC0:", id="naming it"),
        pytest.param("v* m*", "v0 v1 m0 m7", "v0", "/dev/v1 lacks /dev/m1; /dev/m7 lacks /dev/v7:", id="wildcards"),
        pytest.param("v* m[0-3]", "v0 v7 m0", "v0", "", id="a wildcard that leaves one out"),
        pytest.param("c v*", "v0", "", "/dev/v0 lacks /dev/c:", id="a plain path beside"),
        pytest.param("a* b*", "a0 a1 a2 a3 a4", "", "/dev/a2 lacks /dev/b2 and 2 more:", id="many"),
    ],
)
def test_an_incomplete_device_names_what_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, paths: str, present: str, listed: str, lacking: str
) -> None:
    files(tmp_path, *below_dev(present))
    source = source_of(tmp_path, sources.paths(*below_dev(paths)))
    source.refresh()
    reason, message = source.devices.trouble
    assert [device.id for device in source.devices.latest] == listed.split()
    assert (reason == "IncompleteDevice", lacking in message) == (bool(lacking), True)
    assert "no file of the host matches" not in message
    assert len(caplog.records) == bool(lacking), "once, however often it is found"


def test_only_what_is_missing_is_no_match(tmp_path: Path) -> None:
    files(tmp_path, "/dev/codec")
    group = {"paths": [{"path": "/dev/codec"}, {"path": "/dev/video*"}, {"path": "/dev/led*", "optional": True}]}
    source = source_of(tmp_path, group)
    message = "no file of the host matches /dev/video*: connect the device, or correct the path"
    assert source.devices.trouble == ("NoMatch", message)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"paths": [{"path": "/dev/snd"}]}, "/dev/snd is a directory: name its files, such as /dev/snd/*"),
        ({"paths": [{"path": "/dev/bus/*"}]}, "/dev/bus/* is a directory: name its files, such as /dev/bus/*/*"),
        ({"paths": [{"path": "/dev/snd"}], "allowFiles": True}, "/dev/snd is a directory"),
        ({"paths": [{"path": "/dev/null0"}, {"path": "/dev/snd", "optional": True}]}, "/dev/snd is a directory"),
        ({"paths": [{"path": "/dev/stray"}]}, "/dev/stray is not a device file: correct the path, or set allowFiles"),
        ({"paths": [{"path": "/dev/*"}]}, ""),
        ({"paths": [{"path": "/dev/stray"}], "allowFiles": True}, ""),
    ],
)
def test_a_path_of_another_kind_is_explained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, group: dict[str, Any], message: str
) -> None:
    files(tmp_path, "/dev/null0")
    for directory in ("snd", "bus/001"):
        (tmp_path / "dev" / directory).mkdir(parents=True)
    (tmp_path / "dev/stray").touch()
    found = source_of(tmp_path, group).devices.trouble
    assert (found[0] == "WrongPath", found[1].startswith(message)) == (bool(message), True)
    assert "no file of the host matches" not in found[1]
    assert len(caplog.records) == bool(message)


@pytest.mark.parametrize(
    ("paths", "present", "given"),
    [
        pytest.param("a ?b", "a", {"a": "a"}, id="without it"),
        pytest.param("a ?b", "b", {}, id="it alone is no device"),
        pytest.param("?b a", "a b", {"a": "b a"}, id="it names no device"),
        pytest.param("?b a c", "a c", {"a": "a c"}, id="the files behind it keep their settings"),
        pytest.param("?m* v*", "v0 v1 m1 m2", {"v0": "v0", "v1": "m1 v1"}, id="a wildcard"),
        pytest.param("c v* ?m*", "c v0 m2", {"v0": "c v0"}, id="a wildcard that alone is no device"),
    ],
)
def test_an_optional_file(tmp_path: Path, paths: str, present: str, given: dict[str, str]) -> None:
    files(tmp_path, *below_dev(present))
    wanted = [
        {"path": f"/dev/{p.lstrip('?')}", "optional": p[0] == "?", "mountPath": f"/{p.strip('?*')}/"}
        for p in paths.split()
    ]
    source = source_of(tmp_path, {"paths": wanted})
    nodes = {device.id: source.allocate([device.id], None).device_nodes for device in source.devices.latest}
    assert {name: [node.host_path for node in its] for name, its in nodes.items()} == {
        name: below_dev(its) for name, its in given.items()
    }
    assert (source.devices.trouble == ("", "")) == bool(given)
    for its in nodes.values():
        for node in its:
            assert node.container_path.split("/")[1] == node.host_path.split("/")[2].rstrip("0123456789")


def test_an_optional_file_of_two_devices_is_in_both(tmp_path: Path) -> None:
    """What comes takes no device away."""
    timer = {"path": "/dev/snd/timer", "optional": True}
    groups = [{"paths": [{"path": f"/dev/snd/controlC{number}"}, timer]} for number in (0, 1)]
    files(tmp_path, "/dev/snd/controlC0", "/dev/snd/controlC1", "/dev/snd/timer")
    source = source_of(tmp_path, *groups)
    assert [len(source.allocate([device.id], None).device_nodes) for device in source.devices.latest] == [2, 2]
