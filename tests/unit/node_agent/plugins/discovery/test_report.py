"""What is printed: the whole document for programs, and for people lines that are bounded and printable."""

import pytest
from nodedevice_agent.plugins.discovery.candidates import Candidate, CandidateFile
from nodedevice_agent.plugins.discovery.report import as_text

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


def test_nothing_is_found() -> None:
    none = "No device that could be offered was found."
    assert text() == [none]
    notes = ["", "example.com/b has no device: why", "note: one", "note: two"]
    assert text(missing={"example.com/b": "why"}, notes=("one", "two")) == [none, *notes]


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


def test_what_only_root_may_open_says_so_in_place_of_groups() -> None:
    one = Candidate("other", "name", supplemental_groups=[5], only_root=True)
    assert lines_of(one) == [
        "  name",
        "    only root may open all of it: no runAsUser in the container, or deviceOwnership: container (docs/delivery.md)",
    ]


def test_lines_are_bounded_and_printable() -> None:
    long = "x\x1b" * 3000
    one = Candidate("other", long, files=[CandidateFile(long, "", "", 0)], notes=[long], offered_as=[long])
    name, file, note, offered = lines_of(one)
    missing, remark = text(missing={long: ""}, notes=(long,))[-2:]
    sizes = [len(line) for line in (name, file, note, offered, missing, remark)]
    assert sizes == [2 + 160, 4 + 320, len("    note: ") + 320, len("    offered already, as ") + 320, 2048, 2048]
    assert all(line.isprintable() for line in (name, file, note, offered, missing, remark))
