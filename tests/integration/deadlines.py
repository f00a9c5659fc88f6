"""The agent's deadlines of quick calls, raised to minutes: a machine that stands still for seconds decides no test.

What an agent does when such a deadline has passed is tested where the other side never answers.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

_NEVER_SECONDS: Final = 300.0
_OF: Final = {
    "deviceplugin.connection": "DIAL OPTIONS PREFERRED ALLOCATE PRE_START SYNC",
    "deviceplugin.host": "_DRAIN",
    "deviceplugin.reconnect_after_restart": "RECONNECT",
    "deviceplugin.plugin_watcher": "DIAL INFO NOTIFY",
    "kubelet.pod_resources": "CALL",
    "lib.deviceplugin_server.registered_socket": "_REGISTER",
    "nri.session": "DIAL ANSWER REGISTER",
}
# by dotted name
DEADLINES: Final = {
    f"nodedevice_agent.{module}.{name}_SECONDS": _NEVER_SECONDS
    for module, names in _OF.items()
    for name in names.split()
}


def environment(constants: Mapping[str, float] = DEADLINES, turns: Path | None = None) -> dict[str, str]:
    """Variables with which a program of ours has these constants, by dotted name.

    turns: a file that gets a line for each long turn of its event loop.
    """
    path = [str(Path(__file__).with_name("changed_constants")), os.environ.get("PYTHONPATH", "")]
    found = {"PYTHONPATH": os.pathsep.join(filter(None, path)), "TEST_CONSTANTS": json.dumps(dict(constants))}
    return found if turns is None else {**found, "TEST_TURNS": str(turns)}


@pytest.fixture
def long_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an agent in this process, and of those that are started from now on."""
    for name, seconds in DEADLINES.items():
        monkeypatch.setattr(name, seconds)
    for variable, value in environment().items():
        monkeypatch.setenv(variable, value)


@pytest.fixture(autouse=True)
def deadlines(long_deadlines: None) -> None:
    """For each test of a folder whose conftest.py imports both: they decide a test only where the other side never answers."""
