"""The candidates of a node as text for people, and as JSON. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from nodedevice_common.text import shown

from nodedevice_agent.plugins.discovery.candidates import Candidate, CandidateFile, Kind

API_VERSION: Final = "discover.nodedevice.io/v1alpha1"
_TITLES: Final[Mapping[Kind, str]] = {
    "serial": "Serial ports",
    "video": "Video devices",
    "gpu": "GPUs, accelerators and displays",
    "usb": "Other USB devices",
    "other": "Other device files",
}
# of one kind, as text; JSON has all
_MOST_SHOWN: Final = 64
_MOST_FILES: Final = 16
_MOST_TEXT: Final = 160
_PASTE: Final = (
    "Paste what you want of this below `plugins:` of a NodeDeviceConfig (docs/settings.md) or of the agent's file; "
    "the names of resources are yours to choose."
)
_NOTHING: Final = "No device that could be offered was found."


def as_json(found: Iterable[Candidate], missing: Mapping[str, str], notes: Iterable[str]) -> str:
    """Every candidate. missing: why resources of the agent's settings have no device. Only printable ASCII."""
    document = {
        "apiVersion": API_VERSION,
        "kind": "Candidates",
        "candidates": msgspec.to_builtins(list(found)),
        "resourcesWithoutDevices": dict(missing),
        "notes": list(notes),
    }
    return json.dumps(document, indent=2)


def as_text(found: Iterable[Candidate], missing: Mapping[str, str], notes: Iterable[str]) -> Iterator[str]:
    """Lines: the devices, then one block of settings for all of them. Every text of a device is made printable."""
    every = list(found)
    if not every:
        yield _NOTHING
    offers: list[Candidate] = []
    for kind, title in _TITLES.items():
        of_kind = [each for each in every if each.kind == kind]
        if of_kind:
            yield ""
            yield title
        for each in of_kind[:_MOST_SHOWN]:
            yield from _candidate(each)
            offers += [each] if each.plugins and not each.offered_as else []
        if len(of_kind) > _MOST_SHOWN:
            yield f"  and {len(of_kind) - _MOST_SHOWN} more; -o json has all"
    if offers:
        yield from ("", _PASTE, "", *settings_lines(offers))
    ends = [f"{name} has no device: {why}" for name, why in missing.items()]
    ends += [f"note: {note}" for note in notes]
    if ends:
        yield ""
        yield from (shown(line, 2048) for line in ends)


def _candidate(each: Candidate) -> Iterator[str]:
    yield f"  {_title(each)}"
    for file in each.files[:_MOST_FILES]:
        yield f"    {shown(_file(file), 2 * _MOST_TEXT)}"
    if len(each.files) > _MOST_FILES:
        yield f"    and {len(each.files) - _MOST_FILES} more files; -o json has all"
    for note in each.notes:
        yield f"    note: {shown(note, 2 * _MOST_TEXT)}"
    if each.only_root:
        yield "    only root may open all of it: no runAsUser in the container, or deviceOwnership: container (docs/delivery.md)"
    elif each.supplemental_groups:
        yield f"    a container that is not root needs securityContext.supplementalGroups: {each.supplemental_groups}"
    if each.offered_as:
        yield f"    offered already, as {shown(', '.join(each.offered_as), 2 * _MOST_TEXT)}"
    elif each.plugins:
        names = ", ".join(resource["resourceName"] for resource in each.plugins.get("generic", ()))
        yield f"    settings below: {names or ', '.join(each.plugins)}"


def _title(each: Candidate) -> str:
    identity = [f"{key} {value}" for key, value in each.identity.items()]
    return shown("  ".join([each.name, *identity]), _MOST_TEXT)


def _file(file: CandidateFile) -> str:
    stable = [f"= {file.stable}"] if file.stable else []
    driver = f", driver {file.driver}" if file.driver else ""
    return " ".join([file.path, *stable, f"({file.subsystem}{driver}, mode {file.mode}, group {file.group})"])


def settings_lines(found: Iterable[Candidate]) -> Iterator[str]:
    """The YAML below `plugins`, each key once. Texts of devices are quoted as in JSON, which is YAML."""
    entries: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for each in found:
        for kind, value in each.plugins.items():
            if isinstance(value, list):
                entries.setdefault(kind, []).extend((_title(each), entry) for entry in value)
            elif kind not in entries:
                entries[kind] = []
                yield f"{kind}: {_flow(value)}"
    for kind, listed in entries.items():
        if listed:
            yield f"{kind}:"
        for title, entry in listed:
            yield f"  # {title}"
            yield from _entry(entry)


def _entry(entry: Mapping[str, Any]) -> Iterator[str]:
    """One of a list of plugins, with its resourceName first."""
    yield f"  - resourceName: {entry['resourceName']}"
    for key, value in entry.items():
        if isinstance(value, list):
            yield f"    {key}:"
            yield from (f"      - {_flow(each)}" for each in value)
        elif key != "resourceName":
            yield f"    {key}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return json.dumps(value)
