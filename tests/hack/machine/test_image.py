"""Which disks stay in the cache."""

import os
from pathlib import Path

from hack.machine import image


def test_disks_that_were_used_last_are_kept(tmp_path: Path) -> None:
    for used_at, name in enumerate(("base-a", "disk-other", "disk-older", "disk-a", "disk-b")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (used_at, used_at))
    image._forget_unused(tmp_path, "disk-")
    assert {path.name for path in tmp_path.iterdir()} == {"base-a", "disk-a", "disk-b"}
    os.utime(tmp_path / "disk-a")
    (tmp_path / "disk-new").mkdir()
    image._forget_unused(tmp_path, "disk-")
    assert {path.name for path in tmp_path.glob("disk-*")} == {"disk-a", "disk-new"}
