"""What is printed: the whole document for programs, and for people lines that are bounded and printable."""

import json
from typing import Any

import pytest
from nodedevice_agent.plugins.discovery.candidates import Candidate, CandidateFile
from nodedevice_agent.plugins.discovery.report import as_json, as_text

GENERIC: dict[str, Any] = {"generic": [{"resourceName": "example.com/a", "groups": [{"paths": [{"path": "/dev/a"}]}]}]}
SETTINGS = [
    "  # {}",
    "  - resourceName: example.com/a",
    "    groups:",
    '      - {{paths: [{{path: "/dev/a"}}]}}',
]
PASTE = (
    "Paste what you want of this below `plugins:` of a NodeDeviceConfig (docs/settings.md) or of the agent's file; "
    "the names of resources are yours to choose."
)


def text(*found: Candidate, missing: dict[str, str] | None = None, notes: tuple[str, ...] = ()) -> list[str]:
    return [*as_text(found, missing or {}, notes)]


def lines_of(one: Candidate) -> list[str]:
    """Below its kind's title, without the settings."""
    lines = text(one)
    end = lines.index(PASTE) - 1 if PASTE in lines else None
    return lines[lines.index("Other device files") + 1 : end]


def settings_of(*found: Candidate) -> list[str]:
    lines = text(*found)
    return lines[lines.index(PASTE) + 2 :] if PASTE in lines else []


def test_the_document_for_programs() -> None:
    one = Candidate("other", "é", only_root=True, plugins=GENERIC)
    document = as_json([one], {"example.com/b": "why"}, ["a note"])
    assert document.isascii()
    assert document.startswith('{\n  "apiVersion"')
    assert json.loads(document) == {
        "apiVersion": "discover.nodedevice.io/v1alpha1",
        "kind": "Candidates",
        "candidates": [{"kind": "other", "name": "é", "onlyRoot": True, "plugins": GENERIC}],
        "resourcesWithoutDevices": {"example.com/b": "why"},
        "notes": ["a note"],
    }


def test_nothing_is_found() -> None:
    assert text() == ["No device that could be offered was found."]
    assert text(missing={"example.com/b": "why"}, notes=("one", "two")) == [
        "No device that could be offered was found.",
        "",
        "example.com/b has no device: why",
        "note: one",
        "note: two",
    ]


@pytest.mark.parametrize(
    ("one", "is_shown"),
    [
        (Candidate("other", "a", plugins=GENERIC), True),
        (Candidate("other", "a", plugins=GENERIC, offered_as=["b"]), False),
        (Candidate("other", "a"), False),
    ],
)
def test_where_there_is_something_to_paste_it_says_where(one: Candidate, is_shown: bool) -> None:
    assert (PASTE in text(one)) is is_shown
    other = Candidate("serial", "b", plugins=GENERIC)
    assert text(one, other).count(PASTE) == 1


def test_kinds_have_titles_in_order() -> None:
    kinds: Any = ("other", "usb", "gpu", "video", "serial")
    lines = text(*(Candidate(kind, kind) for kind in kinds))
    assert lines == [
        *("", "Serial ports", "  serial", "", "Video devices", "  video"),
        *("", "GPUs, accelerators and displays", "  gpu", "", "Other USB devices", "  usb"),
        *("", "Other device files", "  other"),
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_most_of_one_kind_are_shown(more: int) -> None:
    lines = text(*(Candidate("other", f"a{number}") for number in range(64 + more)), Candidate("serial", "b"))
    assert lines[:3] == ["", "Serial ports", "  b"]
    assert lines[-1] == ("  and 1 more; -o json has all" if more else "  a63")
    assert len(lines) == 5 + 64 + more


@pytest.mark.parametrize("more", [0, 1])
def test_most_files_of_a_device_are_shown(more: int) -> None:
    files = [CandidateFile(f"/dev/a{number}", "misc", "0660", 5) for number in range(16 + more)]
    lines = lines_of(Candidate("other", "a", files=files))
    assert lines[:2] == ["  a", "    /dev/a0 (misc, mode 0660, group 5)"]
    assert lines[-1] == ("    and 1 more files; -o json has all" if more else "    /dev/a15 (misc, mode 0660, group 5)")
    assert len(lines) == 1 + 16 + more


def test_all_that_is_known_of_a_device() -> None:
    one = Candidate(
        "other",
        "name",
        {"usb": "1:2", "port": "1-1"},
        [CandidateFile("/dev/a", "tty", "0660", 20, "/dev/serial/by-id/a", "ftdi_sio")],
        supplemental_groups=[5, 20],
        plugins=GENERIC,
        notes=["one", "two"],
    )
    assert lines_of(one) == [
        "  name usb 1:2 port 1-1",
        "    /dev/a = /dev/serial/by-id/a (tty, driver ftdi_sio, mode 0660, group 20)",
        "    note: one",
        "    note: two",
        "    a container that is not root needs securityContext.supplementalGroups: [5, 20]",
        "    settings below: example.com/a",
    ]
    assert settings_of(one) == ["generic:", SETTINGS[0].format("name usb 1:2 port 1-1"), *map(str.format, SETTINGS[1:])]


def test_each_key_is_there_once() -> None:
    nvml = Candidate("gpu", "g", plugins={"nvml": {}})
    one, two = Candidate("other", "one", plugins=GENERIC), Candidate("serial", "two\u2028x", plugins=GENERIC)
    entries = [line.format(name) for name in ("two x", "one") for line in SETTINGS]
    assert settings_of(nvml, one, two, nvml) == ["nvml: {}", "generic:", *entries]


def test_what_only_root_may_open_says_so_in_place_of_groups() -> None:
    one = Candidate("other", "name", supplemental_groups=[5], only_root=True)
    assert lines_of(one) == [
        "  name",
        "    only root may open all of it: no runAsUser in the container, or deviceOwnership: container (docs/runtimes.md)",
    ]


def test_what_is_offered_already_has_no_settings() -> None:
    one = Candidate("other", "name", offered_as=["example.com/a", "example.com/b"], plugins=GENERIC)
    assert lines_of(one) == ["  name", "    offered already, as example.com/a, example.com/b"]


def test_gpus_of_nvidia_have_their_own_settings() -> None:
    one = Candidate("gpu", "name", plugins={"nvml": {}})
    assert settings_of(one) == ["nvml: {}"]
    assert "    settings below: nvml" in text(one)


def test_lines_are_bounded_and_printable() -> None:
    long = "x\x1b" * 3000
    one = Candidate("other", long, files=[CandidateFile(long, "", "", 0)], notes=[long], offered_as=[long])
    name, file, note, offered = lines_of(one)
    missing, remark = text(missing={long: ""}, notes=(long,))[-2:]
    sizes = [len(line) for line in (name, file, note, offered, missing, remark)]
    assert sizes == [2 + 160, 4 + 320, len("    note: ") + 320, len("    offered already, as ") + 320, 2048, 2048]
    assert all(line.isprintable() for line in (name, file, note, offered, missing, remark))
