"""`make publish`: publishes the output of `make release`, verified and signed, to a registry and a Python package index.

python -m hack.publish REGISTRY [--index ADDRESS] [--index-check ADDRESS] [--key FILE | --unsigned] [--source dist | --check]

First come images without a tag, which are invisible, then wheels, then the chart and tags, which make an install possible.
If it ends early, the registry has no version that could be installed, and the same command continues.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nodedevice_common.safe_output import guard_output

from hack.publish import dist
from hack.publish.dist import Dist
from hack.publish.package_index import PackageIndex
from hack.publish.programs import Program
from hack.publish.registry import Registry, login
from hack.publish.signatures import Signer
from hack.release import chart
from hack.release.errors import ReleaseError
from tests.cluster.build.binaries import find
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).parents[2]
# set by a workflow that may ask for an identity token
_IDENTITY = "ACTIONS_ID_TOKEN_REQUEST_URL"


def publish(release: Dist, registry: Registry, index: PackageIndex | None, signer: Signer | None) -> None:
    """Raises ReleaseError. Equal content that already exists stays unchanged."""
    registry.check(release)
    if index:
        index.check()
    names = []
    for image in release.images:
        _say(f"image {image.program}, {' and '.join(image.manifests)}")
        names.append(registry.push_image(image))
    if signer:
        _say("signatures of the images and of the sums, provenance, SBOMs")
        signer.sign(names)
        for image in release.images:
            signer.attest_image(release, image, f"{registry.prefix}/{image.program}")
        signer.sign_sums(release)
    if index:
        _say("wheels and sdists")
        index.upload(release)
    _say("chart")
    names.append(registry.push_chart(release))
    if signer:
        signer.sign(names[-1:])
        signer.attest(names[-1], "slsaprovenance1", release.provenance)
    for image in release.images:
        registry.tag(image, release.version)
    for name in names:
        _say(name)


def _checked(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    """The key. Raises ReleaseError for faults that do not depend on the release: `make release publish` checks them
    before it builds.
    """
    if not arguments.registry:
        raise ReleaseError("no REGISTRY is given", "write it as REGISTRY=registry.example.com/team")
    chart.check_registry(arguments.registry)
    return _key(arguments, environ)


def _from(arguments: argparse.Namespace, key: Path | None, environ: Mapping[str, str], scratch: Path) -> None:
    """Carry out the command; checks everything that needs no network first."""
    release = dist.read(arguments.source)
    if release.registry != arguments.registry:
        raise ReleaseError(
            f"the chart in {arguments.source} names {release.registry or 'no registry'}, not {arguments.registry}",
            f"run `make release VERSION={release.version} REGISTRY={arguments.registry}`",
        )
    wanted = ["crane", "helm", *([] if arguments.unsigned else ["cosign"])]
    paths = find(wanted, _say)
    logged_in = login(
        arguments.registry, environ.get("REGISTRY_USERNAME", ""), environ.get("REGISTRY_PASSWORD", ""), scratch
    )
    programs = {name: Program(path, logged_in) for name, path in paths.items()}
    index = None
    if arguments.index:
        uv = Program(Path(sys.executable).with_name("uv"))
        index = PackageIndex(uv, arguments.index, arguments.index_check)
    signer = None if arguments.unsigned else Signer(programs["cosign"], key)
    publish(release, Registry(arguments.registry, programs["crane"], programs["helm"]), index, signer)
    if not index:
        _say("no INDEX is given: the wheels are not published")


def _key(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Path | None:
    if arguments.key is None:
        if not arguments.unsigned and _IDENTITY not in environ:
            raise ReleaseError(
                "nothing is given to sign with", "name a private key of cosign's in KEY, or set UNSIGNED=1"
            )
        return None
    key: Path = arguments.key.resolve()
    if arguments.unsigned:
        raise ReleaseError("KEY and UNSIGNED are both given", "leave one of them out")
    if not key.is_file():
        raise ReleaseError(f"KEY={arguments.key} is not a file", "make one with `cosign generate-key-pair`")
    return key


def _say(what: str) -> None:
    print(f"publish: {what}", flush=True)


def main() -> None:
    guard_output()
    parser = argparse.ArgumentParser(prog="make publish", description=__doc__)
    parser.add_argument("registry")
    parser.add_argument("--index", default="")
    parser.add_argument("--index-check", default="")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--unsigned", action="store_true")
    parser.add_argument("--source", type=Path, default=ROOT / "dist")
    parser.add_argument("--check", action="store_true", help="check these arguments, and publish nothing")
    arguments = parser.parse_args()
    try:
        key = _checked(arguments, os.environ)
        if arguments.check:
            return
        with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
            _from(arguments, key, os.environ, Path(scratch))
    except (ReleaseError, ClusterError) as exc:
        sys.exit(f"publish: {exc}")


if __name__ == "__main__":
    main()
