"""Images without a registry: what a runtime would read from the archive."""

import json
import tarfile
from pathlib import Path
from typing import Any

from hack.cluster.build.images import SANDBOX_IMAGE, TEST_IMAGE, write_archive, write_program_archive


def _archive(tmp_path: Path, name: str = "images.tar") -> Path:
    programs = [tmp_path / "busybox", tmp_path / "checker"]
    for program in programs:
        program.write_text("#!/bin/true\n")
    write_archive(tmp_path / name, *programs)
    return tmp_path / name


def _read(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is not a file"
    return json.load(file)


def test_both_images_and_the_programs_are_in_it(tmp_path: Path) -> None:
    with tarfile.open(_archive(tmp_path)) as archive:
        manifest = _read(archive, "manifest.json")
        assert [image["RepoTags"] for image in manifest] == [[TEST_IMAGE], [SANDBOX_IMAGE]]
        for image in manifest:
            config = _read(archive, image["Config"])
            assert config["config"]["Cmd"]
        with tarfile.open(fileobj=archive.extractfile("layer.tar")) as layer:
            assert layer.getmember("bin/checker").mode == 0o755
            assert layer.getmember("bin/sh").linkname == "busybox"


def test_equal_programs_give_equal_archives(tmp_path: Path) -> None:
    assert _archive(tmp_path).read_bytes() == _archive(tmp_path, "again.tar").read_bytes()


def test_an_image_of_one_program(tmp_path: Path) -> None:
    program = tmp_path / "plugin"
    program.write_text("#!/bin/true\n")
    write_program_archive(tmp_path / "image.tar", "vendor.example/plugin:1", program)
    with tarfile.open(tmp_path / "image.tar") as archive:
        (image,) = _read(archive, "manifest.json")
        assert image["RepoTags"] == ["vendor.example/plugin:1"]
        assert _read(archive, image["Config"])["config"]["Cmd"] == ["/bin/plugin"]
        with tarfile.open(fileobj=archive.extractfile("layer.tar")) as layer:
            assert layer.getmember("bin/plugin").mode == 0o755
