"""Both images for both architectures, as their Dockerfiles say, assembled and never executed: equal bytes on any machine.

The programs' byte code is compiled here, so this Python has to be of the release that Debian's packages bring.
"""

import re
import shutil
import sys
from pathlib import Path

from hack.cluster.build.bytecode import compile_folder, compile_standard_library
from hack.release import debian_root, dockerfile, oci, sbom
from hack.release.errors import ReleaseError

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
DOCKERFILES = {"nodedevice-agent": "node-agent/Dockerfile", "nodedevice-operator": "operator/Dockerfile"}


def build(tree: Path, made: Path, scratch: Path, tag: str, epoch: int) -> dict[str, str]:
    """Write NAME-TAG.oci.tar of each program, and an SBOM for each architecture, into `made`. Returns the digests by name.

    In `scratch` the root file systems stay: ARCHITECTURE, and PROGRAM-ARCHITECTURE for what lies above it.
    """
    bases = {}
    for architecture in ARCHITECTURES:
        root = debian_root.make(scratch / architecture, architecture)
        _check_python(root)
        compile_standard_library(root)
        bases[architecture] = oci.layer(root, scratch / f"{architecture}.tar.gz", epoch)
    digests = {}
    for program, path in DOCKERFILES.items():
        stage = dockerfile.read((tree / path).read_text())
        images = {}
        for architecture, base in bases.items():
            root = scratch / f"{program}-{architecture}"
            _install(tree, stage, root, architecture)
            images[architecture] = [base, oci.layer(root, root.with_suffix(".tar.gz"), epoch)]
            ours = [Path(source).name.replace("_", "-") for source, _ in stage.copies]
            bill = sbom.of_image(program, tag, architecture, [scratch / architecture, root], ours, epoch)
            (made / f"{program}-{tag}-{architecture}.cdx.json").write_text(bill)
        archive = made / f"{program}-{tag}.oci.tar"
        digests[program] = oci.write(archive, f"{program}:{tag}", images, stage.config, epoch)
    return digests


def _check_python(root: Path) -> None:
    (found,) = (root / "usr/lib").glob("python3.*/os.py")
    release = found.parent.name.removeprefix("python")
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if release != ours:
        raise ReleaseError(
            f"Debian's Python is {release} and this one is {ours}", f"set PYTHON=python{release} after `make clean`"
        )


def _install(tree: Path, stage: dockerfile.Stage, root: Path, architecture: str) -> None:
    site = root / "opt/nodedevice"
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    uv += ["--only-binary=:all:", "--link-mode=copy", f"--target={site}", "--python-version=3.11"]
    # the oldest C library that Debian's packages bring: 2.36
    uv += [f"--python-platform={ARCHITECTURES[architecture]}-manylinux_2_36", "-r", str(tree / stage.requirements)]
    debian_root.run(uv, "let it reach a Python package index (UV_INDEX_URL), or fill uv's cache")
    _forget_scripts(site)
    for source, target in stage.copies:
        shutil.copytree(tree / source, root / target.lstrip("/"))
    compile_folder(site, "/opt/nodedevice")


def _forget_scripts(site: Path) -> None:
    """Programs of libraries name this machine's Python in their first line, and nobody calls them."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in (".lock", ".gitignore"):
        (site / name).unlink(missing_ok=True)
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not re.match(r"(\.\./)*bin/", line)))
