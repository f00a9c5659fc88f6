"""Changes simulated devices from outside the agent, for the `simulate` command.

Works on the state files alone, so the agent need not run. Commands at the same time wait for each other.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nodedevice_agent.plugins.simulated.devices import SimulatedState
from nodedevice_agent.plugins.simulated.state_file import (
    Listing,
    StateFileError,
    read_listings,
    read_state,
    simulated_dir,
    state_path,
    write_state,
)


class SimulateError(Exception):
    """The command failed; the text names the reason and what exists."""


def set_health(state_dir: Path, resource_name: str, device_id: str, healthy: bool) -> None:
    """Make a device healthy or unhealthy; idempotent. Raises SimulateError."""
    _change(state_dir, resource_name, device_id, lambda state: state.with_health(device_id, healthy))


def set_missing(state_dir: Path, resource_name: str, device_id: str, missing: bool) -> None:
    """Remove a device or add it back; idempotent. Raises SimulateError."""
    _change(state_dir, resource_name, device_id, lambda state: state.with_missing(device_id, missing))


def show(state_dir: Path, resource_name: str) -> dict[str, str]:
    """Whether each device of a resource is healthy, unhealthy or missing. Raises SimulateError."""
    with _translated_errors():
        listing = _listing(state_dir, resource_name)
        state = _state(state_path(state_dir, resource_name))
    return {
        name: "missing" if name in state.missing else "unhealthy" if name in state.unhealthy else "healthy"
        for name in listing.device_ids
    }


def _change(
    state_dir: Path, resource_name: str, device_id: str, change: Callable[[SimulatedState], SimulatedState]
) -> None:
    with _translated_errors():
        listing = _listing(state_dir, resource_name)
        if device_id not in listing.device_ids:
            raise SimulateError(f"{resource_name} has no device {device_id!r}; it has {_some(listing.device_ids)}")
        with _locked(state_dir):
            path = state_path(state_dir, resource_name)
            before = _state(path)
            after = change(before)
            if after != before or not path.exists():
                write_state(path, resource_name, after)


def _listing(state_dir: Path, resource_name: str) -> Listing:
    listings = read_listings(state_dir)
    if resource_name not in listings:
        what = f"simulated here: {_some(list(listings))}" if listings else "nothing is simulated here"
        raise SimulateError(
            f"no simulated resource {resource_name!r} in {state_dir}; {what}; add it to `simulated` in the agent's settings"
        )
    return listings[resource_name]


def _state(path: Path) -> SimulatedState:
    try:
        return read_state(path)
    except FileNotFoundError:
        return SimulatedState()


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:16])
    return f"{shown} and {len(names) - 16} more" if len(names) > 16 else shown or "none"


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """No other command may write between our read and write, or its change would be lost."""
    with (simulated_dir(state_dir) / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except StateFileError as error:
        raise SimulateError(f"{error}; correct the file or delete it") from None
    except OSError as error:
        raise SimulateError(
            f"{error.filename or ''}: {error.strerror}; run this as the user the agent runs as"
        ) from None
