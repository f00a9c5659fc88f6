"""Images without a registry: what a runtime would read from the archive, and which archive in the cache is of the present sources.

What is built runs in tests/e2e/chart.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.build import product_images
from hack.cluster.build.images import CUDA_IMAGE, SANDBOX_IMAGE, TEST_IMAGE, write_archive, write_program_archive
from hack.cluster.build.product_images import PROGRAMS


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


def test_all_images_and_the_programs_are_in_it(tmp_path: Path) -> None:
    with tarfile.open(_archive(tmp_path)) as archive:
        manifest = _read(archive, "manifest.json")
        assert [image["RepoTags"] for image in manifest] == [[TEST_IMAGE], [CUDA_IMAGE], [SANDBOX_IMAGE]]
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


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_that_the_dockerfile_copies_decides(program: str, tmp_path: Path) -> None:
    context = product_images.context(program, tmp_path / "context")
    assert not list(context.rglob("__pycache__"))
    tag = product_images._image(program, context, tmp_path).tag
    assert product_images._image(program, product_images.context(program, tmp_path / "again"), tmp_path).tag == tag
    files = [path for path in context.rglob("*") if path.is_file()]
    assert {"names.py", "__main__.py", "Dockerfile"} <= {path.name for path in files}
    for path in (
        path for path in files if path.name in ("names.py", "__main__.py", "Dockerfile") or path.suffix == ".txt"
    ):
        before = path.read_bytes()
        path.write_bytes(before + b"# changed")
        assert product_images._image(program, context, tmp_path).tag != tag, path
        path.write_bytes(before)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    program = next(iter(PROGRAMS))
    others = tmp_path / "another-program-1.tar"
    others.touch()
    for number in range(4):
        (tmp_path / f"{program}-{number}.tar").touch()
    product_images._forget_old(program, tmp_path)
    assert len(list(tmp_path.glob(f"{program}-*.tar"))) == 2
    assert others.exists()
