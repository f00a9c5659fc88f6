"""The files of the simulated plugin: the state that people edit, and the list of devices.

`<state-dir>/simulated/<resource>.yaml` holds changes by hand or by command; the plugin writes `<resource>.devices.json` beside it,
so that a command can check an ID without the agent's settings. Every write is a temporary file and a rename.
"""

import os
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from nodedevice_agent.lib.deviceplugin_server.values import file_slug, natural_key
from nodedevice_agent.plugins.simulated.devices import SimulatedState

_STATE_SUFFIX = ".yaml"
_LISTING_SUFFIX = ".devices.json"
_MAX_BYTES = 1024 * 1024
# The C parser is eight times faster; parsing blocks the event loop.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_HEADER = """\
# Simulated devices of {resource_name}. Edit and save: the agent notices at once.
#   unhealthy: [ID, ...]   unhealthy devices
#   missing: [ID, ...]     removed devices
#   count: N               number of devices, instead of the agent's setting
"""


class StateFileError(ValueError):
    """An invalid state file; the text names the file and the mistake."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class Listing(Struct, rename="camel"):
    """The devices that the plugin simulates."""

    resource_name: str
    device_ids: list[str]


def simulated_dir(state_dir: Path) -> Path:
    """Where the files of all simulated resources are."""
    return state_dir / "simulated"


def state_path(state_dir: Path, resource_name: str) -> Path:
    """The file that people edit."""
    return simulated_dir(state_dir) / f"{file_slug(resource_name)}{_STATE_SUFFIX}"


def parse_state(path: Path, content: bytes) -> SimulatedState:
    """Parse a state file; an empty one means no changes. Raises StateFileError."""
    try:
        raw = yaml.load(content, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise StateFileError(path, f"not YAML: {' '.join(str(error).split())}") from None
    except Exception as error:
        # odd dates, empty numbers and deep nesting leave the YAML library as half a dozen other exceptions
        raise StateFileError(path, f"not a state file: {type(error).__name__}: {str(error)[:200]}") from None
    try:
        return msgspec.convert(raw if raw is not None else {}, SimulatedState)
    except msgspec.ValidationError as error:
        raise StateFileError(path, f"{error}; keys are unhealthy, missing and count") from None
    except RecursionError:
        raise StateFileError(path, "a list that holds itself; keys are unhealthy, missing and count") from None
    except UnicodeError:
        raise StateFileError(path, "half a character (a lone surrogate) in a text; write it whole") from None


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
            listing = msgspec.json.decode(read_bounded(path), type=Listing)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StateFileError(path, f"{error}; restart the agent to write this file again") from None
        listings[listing.resource_name] = listing
    return listings


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)
