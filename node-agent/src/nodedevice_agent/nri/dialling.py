"""The way to the runtime's socket, and what a person can do where there is none."""

import asyncio
from pathlib import Path

DIAL_SECONDS = 5.0


class SessionEnded(Exception):
    """The connection is over, or never came about. The text says why and what to do."""


async def dial(socket: Path, protocol: asyncio.Protocol) -> None:
    """Connect the protocol. Raises SessionEnded."""
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, str(socket))
    except TimeoutError as exc:
        raise SessionEnded(f"{socket} does not take connections; is the container runtime stuck?") from exc
    except OSError as exc:
        raise SessionEnded(_why_not(socket, exc)) from exc


def _why_not(socket: Path, error: OSError) -> str:
    match error:
        case FileNotFoundError():
            return (
                f"there is no {socket}: enable NRI in the container runtime (on by default since containerd 2.0 and CRI-O 1.30), "
                "mount the socket's directory into the agent, or name the right one"
            )
        case ConnectionRefusedError():
            return f"nobody listens on {socket}; is the container runtime running?"
        case PermissionError():
            return f"{socket} must not be opened by the agent, which has to run as root: {error.strerror}"
    return f"{socket} cannot be connected to: {error.strerror or error}"
