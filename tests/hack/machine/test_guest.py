"""What a guest is furnished with: units that systemd can read, and nothing that names this machine."""

import configparser
from pathlib import Path

import pytest

from hack.machine import guest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    guest.furnish(root)
    return root


def test_every_unit_says_what_it_starts(root: Path) -> None:
    units = [path for path in (root / "etc/systemd/system").glob("*.*") if path.is_file() and not path.is_symlink()]
    assert len(units) > 4
    for unit in units:
        text = configparser.ConfigParser(strict=False, interpolation=None)
        text.read(unit)
        assert text["Unit"]["Description"]
        assert "Service" in text or "Socket" in text


def test_a_second_time_changes_nothing(root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    guest.furnish(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
