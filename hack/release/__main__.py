"""`make release`: builds everything that is published, from one commit into one folder, completely or not at all.

python -m hack.release VERSION [--registry PREFIX] [--source ADDRESS] [--target dist]
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from packaging.version import Version

from hack.release import chart, distributions, images, krew, manifest, provenance, sbom, sources, sums, version, zipapp
from hack.release.errors import ReleaseError
from tests.cluster.build.binaries import find
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[2]


def release(root: Path, name: str, registry: str, target: Path, *, source: str = "", with_images: bool = True) -> None:
    """Make a release of the checkout in `root`. Raises ReleaseError or ClusterError, and then leaves `target` unchanged.

    source: address of the sources, for Chart.yaml.
    with_images: False leaves out the images, which take minutes and need Debian's packages; the chart then names
    images by tag.
    """
    wanted = version.parse(name)
    chart.check_registry(registry)
    chart.with_source("", source)
    sources.check_clean(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    # in the target's folder, so that it is renamed into place
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        tree = sources.export(root, Path(scratch) / "tree")
        made = Path(scratch) / "made"
        made.mkdir()
        epoch = sources.commit_time(root)
        _distributions(tree, made, wanted, source, epoch)
        digests = {}
        if with_images:
            _say("images for amd64 and arm64, a few minutes")
            digests = images.build(tree, made, Path(scratch) / "images", name, epoch)
        _chart(tree, made, registry, digests, source, epoch)
        (made / "provenance.json").write_text(provenance.text(name, registry, source, sources.commit(root)))
        sums.write(made)
        if target.exists():
            target.rename(Path(scratch) / "former")
        made.rename(target)


def _distributions(tree: Path, made: Path, wanted: Version, source: str, epoch: int) -> None:
    pyprojects = [f"{name}/pyproject.toml" for name in distributions.DISTRIBUTIONS]
    chart_yaml = (tree / "charts/nodedevice/Chart.yaml").read_text()
    version.check_sources(wanted, {path: (tree / path).read_text() for path in pyprojects}, chart_yaml)
    (made / "NOTES.md").write_text(version.notes((tree / "CHANGELOG.md").read_text(), wanted))
    _say("wheels and sdists")
    for archive in distributions.build(tree, made, epoch):
        if archive.suffix == ".whl":
            name = "-".join(archive.name.split("-")[:2])
            (made / f"{name}.cdx.json").write_text(sbom.of_wheel(archive, epoch))
    zipapp.write(tree, made / zipapp.NAME)
    bill = sbom.of_zipapp(zipapp.LIBRARY, str(wanted), zipapp.libraries(tree), epoch)
    (made / f"{zipapp.NAME}.cdx.json").write_text(bill)
    krew.write(made / zipapp.NAME, tree / "LICENSE", str(wanted), source, made)


def _chart(tree: Path, made: Path, registry: str, digests: Mapping[str, str], source: str, epoch: int) -> None:
    _say("chart and plain manifests")
    folder = tree / "charts/nodedevice"
    values = folder / "values.yaml"
    values.write_text(chart.with_images(values.read_text(), registry, digests))
    described = folder / "Chart.yaml"
    described.write_text(chart.with_source(described.read_text(), source))
    helm = str(find(["helm"])["helm"])
    archive = chart.package(helm, folder, made, epoch)
    manifest.write(helm, archive, made)
    (made / f"{archive.stem}.cdx.json").write_text(sbom.of_chart(archive, epoch))


def _say(what: str) -> None:
    print(f"release: {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--registry", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--target", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    os.umask(0o022)  # files that are installed into an image get their modes from it
    try:
        release(ROOT, arguments.version, arguments.registry, arguments.target.resolve(), source=arguments.source)
    except (ReleaseError, ClusterError) as exc:
        sys.exit(f"release: {exc}")
    _say(f"{arguments.target} is complete; `cd {arguments.target} && sha256sum --check {sums.NAME}`")


if __name__ == "__main__":
    main()
