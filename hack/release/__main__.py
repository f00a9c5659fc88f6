"""`make release`: everything that is published, from one commit into one folder, whole or not at all.

python -m hack.release VERSION [--registry PREFIX] [--target dist]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from hack.cluster.build.binaries import find
from hack.cluster.errors import ClusterError
from hack.release import chart, distributions, sources, sums, version
from hack.release.errors import ReleaseError

ROOT = Path(__file__).parents[2]


def release(root: Path, name: str, registry: str, target: Path, *, images: bool = True) -> None:
    """Make a release of what is checked out in `root`. Raises ReleaseError or ClusterError, with `target` as it was.

    images: False leaves out what takes minutes and packages of Debian's; the chart then names images by tag.
    """
    wanted = version.parse(name)
    sources.check_clean(root)
    target.parent.mkdir(parents=True, exist_ok=True)
    # beside the target, so that it is renamed into place
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        tree = sources.export(root, Path(scratch) / "tree")
        made = Path(scratch) / "made"
        made.mkdir()
        _fill(tree, made, wanted, registry, sources.commit_time(root))
        if target.exists():
            target.rename(Path(scratch) / "former")
        made.rename(target)


def _fill(tree: Path, made: Path, wanted: Version, registry: str, epoch: int) -> None:
    pyprojects = {f"{name}/pyproject.toml": tree / name / "pyproject.toml" for name in distributions.DISTRIBUTIONS}
    folder = tree / "charts" / "nodedevice"
    version.check_sources(
        wanted, {path: file.read_text() for path, file in pyprojects.items()}, (folder / "Chart.yaml").read_text()
    )
    (made / "NOTES.md").write_text(version.notes((tree / "CHANGELOG.md").read_text(), wanted))
    _say("wheels and sdists")
    distributions.build(tree, made, epoch)
    _say("chart")
    values = folder / "values.yaml"
    values.write_text(chart.with_images(values.read_text(), registry, {}))
    chart.package(str(find(["helm"])["helm"]), folder, made, epoch)
    sums.write(made)


def _say(what: str) -> None:
    print(f"release: {what}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--registry", default="")
    parser.add_argument("--target", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    try:
        release(ROOT, arguments.version, arguments.registry, arguments.target.resolve())
    except (ReleaseError, ClusterError) as exc:
        sys.exit(f"release: {exc}")
    _say(f"{arguments.target} is complete; `cd {arguments.target} && sha256sum --check {sums.NAME}`")


if __name__ == "__main__":
    main()
