"""The files of the simulated plugin, and their changes by the `simulate` command: the agent need not run.

`<state-dir>/simulated/<resource>.yaml` holds changes by hand or by command; the plugin also writes `<resource>.devices.json`, so
that a command can check an ID without the agent's settings. Every write is a temporary file and a rename. Commands at the same
time wait for each other.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
import yaml
from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.parts import parent_and_number
from nodedevice_common.decoding import Undecodable, convert, decode
from nodedevice_common.yaml_decoding import QUICK_LOADER, decode_yaml

from nodedevice_agent.lib.deviceplugin_server.values import file_slug, natural_key, some
from nodedevice_agent.plugins.contract import CommandFailed
from nodedevice_agent.plugins.simulated.devices import SimulatedState

_LISTING_SUFFIX = ".devices.json"
_MAX_BYTES = 1024 * 1024
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_HEADER = """\
# Simulated devices of {resource_name}. Edit and save: the agent notices at once.
#   unhealthy: [ID, ...]   unhealthy devices, or parts of devices
#   missing: [ID, ...]     removed ones
#   count: N               number of devices, instead of the agent's setting
"""


class StateFileError(ValueError):
    """An invalid state file; the text names the file and the mistake."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")


class Listing(Struct, rename="camel"):
    """The devices that the plugin simulates."""

    resource_name: str
    device_ids: list[str]


def simulated_dir(state_dir: Path) -> Path:
    """The folder of all simulated resources' files."""
    return state_dir / "simulated"


def state_path(state_dir: Path, resource_name: str) -> Path:
    """The file that people edit."""
    return simulated_dir(state_dir) / f"{file_slug(resource_name)}.yaml"


def parse_state(path: Path, content: bytes) -> SimulatedState:
    """Parse a state file; an empty one means no changes. Raises StateFileError."""
    try:
        raw = decode_yaml(content, QUICK_LOADER)
    except Undecodable as error:
        what = "not YAML" if isinstance(error.__cause__, yaml.YAMLError) else "not a state file"
        raise StateFileError(path, f"{what}: {error}") from None
    try:
        return convert(raw if raw is not None else {}, SimulatedState)
    except Undecodable as error:
        is_half = isinstance(error.__cause__, UnicodeError)
        half = "half a character (a lone surrogate) in a text; write it whole"
        raise StateFileError(path, half if is_half else f"{error}; keys are unhealthy, missing and count") from None


def read_state(path: Path) -> SimulatedState:
    """Raises StateFileError, also for a file that is too big, and OSError."""
    return parse_state(path, read_bounded(path))


def read_bounded(path: Path) -> bytes:
    """The whole file. Raises StateFileError when it is bigger than any state can be, and OSError."""
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise StateFileError(path, f"bigger than {_MAX_BYTES} bytes; keys are unhealthy, missing and count")
    return content


def write_state(path: Path, resource_name: str, state: SimulatedState) -> None:
    """Replace the file atomically. Raises OSError."""
    content: dict[str, object] = {
        "unhealthy": sorted(state.unhealthy, key=natural_key),
        "missing": sorted(state.missing, key=natural_key),
    }
    if state.count is not None:
        content["count"] = state.count
    header = _HEADER.format(resource_name=resource_name)
    _replace(path, (header + yaml.dump(content, Dumper=_DUMPER, sort_keys=False)).encode())


def write_listing(state_dir: Path, listing: Listing) -> None:
    """Write which devices exist. Raises OSError."""
    name = f"{file_slug(listing.resource_name)}{_LISTING_SUFFIX}"
    _replace(simulated_dir(state_dir) / name, msgspec.json.encode(listing))


def read_listings(state_dir: Path) -> dict[str, Listing]:
    """All simulated resources of this node, by name. Raises StateFileError and OSError."""
    listings = {}
    for path in sorted(simulated_dir(state_dir).glob(f"*{_LISTING_SUFFIX}")):
        try:
            listing = decode(read_bounded(path), Listing)
        except Undecodable as error:
            raise StateFileError(path, f"{error}; restart the agent to write this file again") from None
        listings[listing.resource_name] = listing
    return listings


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except StateFileError as error:
        raise CommandFailed(f"{error}; correct the file or delete it") from None
    except OSError as error:
        raise CommandFailed(
            f"{error.filename or ''}: {error.strerror}; run this as the user the agent runs as"
        ) from None


def set_health(state_dir: Path, resource_name: str, device_id: str, healthy: bool) -> None:
    """Make a device healthy or unhealthy; idempotent. Raises CommandFailed."""
    _change(state_dir, resource_name, device_id, "unhealthy", not healthy)


def set_missing(state_dir: Path, resource_name: str, device_id: str, missing: bool) -> None:
    """Remove a device or add it back; idempotent. Raises CommandFailed."""
    _change(state_dir, resource_name, device_id, "missing", missing)


@_translated_errors()
def show(state_dir: Path, resource_name: str) -> dict[str, str]:
    """Whether each device of a resource is healthy, unhealthy or missing. Raises CommandFailed."""
    listing = _listing(state_dir, resource_name)
    state = _state(state_path(state_dir, resource_name))
    return {name: _shown(state, name) for name in listing.device_ids}


def _shown(state: SimulatedState, name: str) -> str:
    part = parent_and_number(name)
    names = (name,) if part is None else (name, part[0])
    is_there, is_healthy = state.missing.isdisjoint(names), state.unhealthy.isdisjoint(names)
    return "missing" if not is_there else "healthy" if is_healthy else "unhealthy"


@_translated_errors()
def _change(
    state_dir: Path, resource_name: str, device_id: str, name: Literal["unhealthy", "missing"], is_in: bool
) -> None:
    """Add the device to this set of the state, or remove it."""
    listing = _listing(state_dir, resource_name)
    if device_id not in listing.device_ids:
        raise CommandFailed(
            f"{resource_name} has no device {device_id!r}; it has {some(listing.device_ids, most=16) or 'none'}"
        )
    with _locked(state_dir):
        path = state_path(state_dir, resource_name)
        before = _state(path)
        ids = getattr(before, name) - {device_id}
        after = replace(before, **{name: ids | {device_id} if is_in else ids})
        if after != before or not os.path.exists(path):
            write_state(path, resource_name, after)


def _listing(state_dir: Path, resource_name: str) -> Listing:
    listings = read_listings(state_dir)
    if resource_name not in listings:
        what = f"simulated here: {some([*listings], most=16)}" if listings else "nothing is simulated here"
        raise CommandFailed(
            f"no simulated resource {resource_name!r} in {state_dir}; {what}; add it to `simulated` in the agent's settings"
        )
    return listings[resource_name]


def _state(path: Path) -> SimulatedState:
    try:
        return read_state(path)
    except FileNotFoundError:
        return SimulatedState()


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """No other command may write between our read and write, or its change would be lost."""
    with (simulated_dir(state_dir) / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
