"""Keeps over a restart of the agent which serials of USB devices are repeated, and where the first device of each is.

`<state-dir>/usb-serials/<resource>.json`. Without it, both devices with a repeated serial are named by their ports after a
restart.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.log_once import LogOnce

from nodedevice_agent.lib.deviceplugin_server.values import file_slug
from nodedevice_agent.lib.filesystem import replace_durably
from nodedevice_agent.plugins.generic.serials import Known, Serial

log = logging.getLogger(__name__)

_MAX_BYTES = 1024 * 1024


class _Entry(Struct):
    vendor: str
    product: str
    serial: str
    port: str
    is_repeated: bool


class SerialsFile:
    """The file of one resource. Writes only changes. A problem is logged once, and matters only at the next start."""

    def __init__(self, state_dir: Path, resource_name: str) -> None:
        self._path = state_dir / "usb-serials" / f"{file_slug(resource_name)}.json"
        self._written: dict[Serial, Known] = {}
        self._problems = LogOnce(log)

    def read(self) -> dict[Serial, Known]:
        """Returns an empty mapping if the file is missing or unreadable: then it is written again."""
        try:
            with self._path.open("rb") as file:
                entries = decode(file.read(_MAX_BYTES), list[_Entry])
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, Undecodable) as error:
            event = "serials of USB devices are unreadable; forgetting which ones are repeated"
            self._problems.report(event, str(error), path=str(self._path))
            return {}
        self._written = {(e.vendor, e.product, e.serial): Known(e.port, e.is_repeated) for e in entries}
        return dict(self._written)

    def write(self, known: Mapping[Serial, Known]) -> None:
        """Replace the file durably, if it changes."""
        if known == self._written:
            return
        entries = [_Entry(*serial, each.port, each.is_repeated) for serial, each in known.items()]
        problem = ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_durably(self._path, msgspec.json.encode(entries).decode())
        except OSError as error:
            problem = str(error)
        else:
            self._written = dict(known)
        self._problems.report("cannot save the serials of USB devices", problem, path=str(self._path))
