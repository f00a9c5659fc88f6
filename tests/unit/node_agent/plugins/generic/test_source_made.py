"""How a source is put together: each part is there, and has its settings."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.scan import SelectScan
from nodedevice_agent.plugins.generic.serials_file import SerialsFile
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings, PathSettings
from nodedevice_agent.plugins.generic.source import GenericSource

from tests.fakes.parts import misfits, one_of, parts_of

SETTINGS = GenericSettings("example.com/serial", [GroupSettings(paths=[PathSettings("/dev/x")])])


@pytest.mark.parametrize(("host_root", "root"), [("/", ""), ("", ""), ("/host", "/host"), ("/host/", "/host")])
def test_each_part_knows_where_the_host_is(host_root: str, root: str) -> None:
    made = GenericSource(SETTINGS, host_root, FileWatcher())
    assert misfits(made) == []
    scan = one_of(made, SelectScan)
    assert (made._root, scan._root, scan._resource_name) == (root, root, SETTINGS.resource_name)
    assert not [part for part in parts_of(made) if isinstance(part, SerialsFile)]


def test_what_is_remembered_has_a_file_of_the_resources_own(tmp_path: Path) -> None:
    reads: Any = FileReads()
    made = GenericSource(SETTINGS, "/", FileWatcher(), tmp_path, reads)
    assert one_of(made, SerialsFile)._path == SerialsFile(tmp_path, SETTINGS.resource_name)._path
    assert one_of(made, FileReads) is reads
