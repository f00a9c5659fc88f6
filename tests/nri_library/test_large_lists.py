"""What the agent's plugin is sent when it connects, by NRI's own library: a list of any length, in messages of 4 MiB."""

from pathlib import Path

from tests.nri_library.library import Plugin, Runtime
from tests.nri_library.test_fail_closed import REQUIRED, WITH_DEVICE
from tests.nri_library.test_fail_closed import library as library


def test_a_list_of_a_quarter_of_a_gigabyte(library: Path, tmp_path: Path) -> None:
    """A plugin has two seconds for it, which a busy machine may not have: a minute here."""
    with Runtime(library, tmp_path, validator=True, timeout="60s") as runtime:
        runtime.running(250, 1_000_000, pods=250)
        with Plugin(runtime.socket):
            assert runtime.plugin_connects() == ""
            assert runtime.create("a", REQUIRED) == WITH_DEVICE


def test_what_the_library_cannot_send(library: Path, tmp_path: Path) -> None:
    """docs/delivery.md says so; where this fails, the library can, and the page is out of date."""
    with Runtime(library, tmp_path, validator=True) as runtime:
        runtime.running(8, 1_100_000, pods=8)
        with Plugin(runtime.socket):
            assert runtime.plugin_connects() == "failed to synchronize plugin with split messages"
