"""What is found on each made-up host, whole, for people and for programs. `GOLDEN=write make unit` writes the files.

But for owners and modes of files, which are those of whoever runs the tests.
"""

import json
import re
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.sysfs import FakeSysfs
from tests.unit import golden
from tests.unit.node_agent.plugins.discovery.hosts import HOSTS
from tests.unit.node_agent.plugins.discovery.test_discover import _no_nvidia as _no_nvidia
from tests.unit.node_agent.plugins.discovery.test_discover import found, run
from tests.unit.node_agent.plugins.discovery.test_discover import host as host

FOLDER: Final = Path(__file__).with_name("found")
_OF_OWNERS: Final = ("only root may open", "a container that is not root needs")


def shown(host: FakeSysfs) -> str:
    lines = [line for line in run(host).output.splitlines() if not line.strip().startswith(_OF_OWNERS)]
    text = re.sub(r", mode \d+, group \d+", "", "\n".join(lines))
    every = found(host)
    for each in every:
        for name in ("supplementalGroups", "onlyRoot"):
            # one that is empty is left out
            each.pop(name, None)
        for file in each["files"]:
            file.pop("mode", None)
            file.pop("group", None)
    return f"{text}\n{json.dumps(every, indent=1)}\n".replace(str(host.root), "")


@pytest.mark.parametrize("name", HOSTS)
def test_all_that_is_found(name: str, host: FakeSysfs) -> None:
    HOSTS[name](host)
    golden.check(FOLDER, name.replace(" ", "-"), shown(host).encode(), "txt")


def test_each_file_has_its_host() -> None:
    assert golden.names(FOLDER) == {name.replace(" ", "-") for name in HOSTS}
