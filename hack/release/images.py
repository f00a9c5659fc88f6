"""Both images for both architectures, by their Dockerfiles, assembled and never executed: equal bytes on any machine.

The programs' byte code is compiled here, so this Python must have the release of Debian's packages.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from nodedevice_common import launcher

from hack.release import debian_root, dockerfile, oci, sbom
from hack.release.errors import ReleaseError
from tests.cluster.build.bytecode import compile_folder, compile_standard_library

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
# selects the wheels, and compiles byte code
_OURS = f"{sys.version_info.major}.{sys.version_info.minor}"
# Debian's
_PYTHON = "/usr/bin/python3"
DOCKERFILES = {"nodedevice-agent": "node-agent/Dockerfile", "nodedevice-operator": "operator/Dockerfile"}


def build(tree: Path, made: Path, scratch: Path, tag: str, epoch: int) -> dict[str, str]:
    """Write NAME-TAG.oci.tar of each program, and an SBOM for each architecture, into `made`. Returns the digests by
    name.

    The root file systems stay in `scratch`: ARCHITECTURE, and PROGRAM-ARCHITECTURE for the layers above it.
    """
    lowest = bases(scratch, ARCHITECTURES, epoch)
    digests = {}
    for program, path in DOCKERFILES.items():
        archive = made / f"{program}-{tag}.oci.tar"
        digests[program] = assemble(tree, program, f"{program}:{tag}", archive, lowest, scratch, epoch)
        copies = dockerfile.read((tree / path).read_text()).copies
        ours = [Path(source).name.replace("_", "-") for source, _ in copies]
        for architecture in ARCHITECTURES:
            roots = [scratch / architecture, scratch / f"{program}-{architecture}"]
            bill = sbom.of_image(program, tag, architecture, roots, ours, epoch)
            (made / f"{program}-{tag}-{architecture}.cdx.json").write_text(bill)
    return digests


def bases(scratch: Path, architectures: Iterable[str], epoch: int) -> dict[str, oci.Layer]:
    """The layer below all programs, by architecture. `scratch`: an empty folder; the root file systems stay in it."""
    found = {}
    for architecture in architectures:
        root = debian_root.make(scratch / architecture, architecture)
        _check_python(root)
        compile_standard_library(root)
        found[architecture] = oci.layer(root, scratch / f"{architecture}.tar.gz", epoch)
    return found


def assemble(
    tree: Path, program: str, name: str, archive: Path, bases: Mapping[str, oci.Layer], scratch: Path, epoch: int
) -> str:
    """Write the archive of one program under a name such as `nodedevice-agent:0.1.0`. Returns the index's digest."""
    stage = dockerfile.read((tree / DOCKERFILES[program]).read_text())
    layers = {}
    for architecture, base in bases.items():
        root = scratch / f"{program}-{architecture}"
        _install(tree, stage, root, architecture)
        layers[architecture] = [base, oci.layer(root, root.with_suffix(".tar.gz"), epoch)]
    labels = {**stage.labels, "org.opencontainers.image.version": name.rpartition(":")[2]}
    return oci.write(archive, name, layers, {**stage.config, "Labels": labels}, epoch)


def _check_python(root: Path) -> None:
    (found,) = (root / "usr/lib").glob("python3.*/os.py")
    release = found.parent.name.removeprefix("python")
    if release != _OURS:
        raise ReleaseError(
            f"Debian's Python is {release} and this one is {_OURS}", f"set PYTHON=python{release} after `make clean`"
        )


def _install(tree: Path, stage: dockerfile.Stage, root: Path, architecture: str) -> None:
    site = root / "opt/nodedevice"
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    uv += ["--only-binary=:all:", "--link-mode=copy", f"--target={site}", f"--python-version={_OURS}"]
    # the oldest C library of Debian's packages: 2.36
    uv += [f"--python-platform={ARCHITECTURES[architecture]}-manylinux_2_36", "-r", str(tree / stage.requirements)]
    debian_root.run(uv, "let it reach a Python package index (UV_INDEX_URL), or fill uv's cache")
    _forget_scripts(site)
    for source, target in stage.copies:
        shutil.copytree(tree / source, root / target.lstrip("/"))
    compile_folder(site, "/opt/nodedevice", stage.levels)
    for program in stage.programs:
        path = root / program.lstrip("/")
        launcher.write(path.parent, path.name, _PYTHON)


def _forget_scripts(site: Path) -> None:
    """Remove the scripts of libraries: their first line names this machine's Python, and they are never called."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in (".lock", ".gitignore"):
        (site / name).unlink(missing_ok=True)
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not re.match(r"(\.\./)*bin/", line)))
