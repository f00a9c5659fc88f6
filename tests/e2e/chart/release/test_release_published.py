"""A release as users get it: published by `make publish`, installed from the registry and the package index, signatures verified.

The registry and the index are on this machine; the node's own containerd pulls from the one, pip installs from the other.
Comes after the tests of loaded archives: an image that the kubelet has pulled once is pulled again where it was loaded under
another name.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.publish.dist import read
from hack.publish.signatures import BUNDLE
from hack.release import chart as release_chart
from hack.release import manifest, sums
from tests.cluster.build.binaries import find
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.processes.processes import reserved_ports
from tests.e2e.chart.cluster import ChartCluster
from tests.e2e.chart.workloads import GPU, built_in, user
from tests.hack.publish.services import PASSWORD, USER, Service, package_index, registry

_ROOT = Path(__file__).parents[4]
_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
_COSIGN_PASSWORD = "of the key"
# of a key alone, nothing is in a public log
_BY_KEY = "--insecure-ignore-tlog=true"


@pytest.fixture(scope="module")
def to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A registry that the node may read without a user, as most projects have one."""
    with reserved_ports(1) as (port,), registry(tmp_path_factory.mktemp("registry"), port, with_user=False) as service:
        yield service


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with package_index(tmp_path_factory.mktemp("index")) as service:
        yield service


@pytest.fixture(scope="module")
def published(dist: Path, to: Service, index: Service, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the key, and of the release as it is for that registry."""
    folder = tmp_path_factory.mktemp("published")
    _for_registry(dist, folder / "dist", f"{to.address}/team")
    _run([_cosign(), "generate-key-pair"], folder)
    command = [sys.executable, "-m", "hack.publish", f"{to.address}/team", "--source", str(folder / "dist")]
    command += ["--key", str(folder / "cosign.key"), "--index", f"http://{index.address}/"]
    _run(command, _ROOT)
    return folder


def _for_registry(dist: Path, target: Path, prefix: str) -> None:
    """The release as `make release REGISTRY=…` would have made it: the chart, and what is made of it, differ."""
    target.mkdir()
    for file in dist.iterdir():
        (target / file.name).hardlink_to(file)
    (archive,) = target.glob("*.tgz")
    unpacked = target.parent / "chart"
    with tarfile.open(archive) as files:
        files.extractall(unpacked, filter="data")
    values = unpacked / "nodedevice/values.yaml"
    values.write_text(release_chart.with_images(values.read_text(), prefix, {}))
    for changed in (archive, target / sums.NAME, target / manifest.INSTALL, target / manifest.UNINSTALL):
        changed.unlink()
    helm = str(find(["helm"])["helm"])
    manifest.write(helm, release_chart.package(helm, unpacked / "nodedevice", target, epoch=1_700_000_000), target)
    sums.write(target)


def test_helm_installs_from_the_registry(cluster: ChartCluster, published: Path, to: Service) -> None:
    named = f"oci://{to.address}/team/nodedevice"
    cluster.release.install(built_in(2), "--plain-http", "--version", _VERSION, chart=named)
    cluster.wait_capacity(GPU, 2)
    cluster.run(user("holds", {GPU: 1}))
    cluster.release.test("--logs")
    ours = cluster.get("pods", "-n", SYSTEM_NAMESPACE)["items"]
    ran = {state["imageID"] for pod in ours for state in pod["status"]["containerStatuses"]}
    images = read(published / "dist").images
    assert ran == {f"{to.address}/team/{image.program}@{image.digest}" for image in images}


def test_signatures_and_provenance_verify(published: Path, to: Service) -> None:
    by_key = ["--key", str(published / "cosign.pub"), _BY_KEY]
    release = read(published / "dist")
    for repository in ("nodedevice", "nodedevice-agent", "nodedevice-operator"):
        name = f"{to.address}/team/{repository}:{_VERSION}"
        _run([_cosign(), "verify", *by_key, name], published)
        _run([_cosign(), "verify-attestation", *by_key, "--type", "slsaprovenance1", name], published)
    for image in release.images:
        for digest in image.manifests.values():
            name = f"{to.address}/team/{image.program}@{digest}"
            _run([_cosign(), "verify-attestation", *by_key, "--type", "cyclonedx", name], published)
    verify = [_cosign(), "verify-blob", *by_key, "--bundle", str(release.folder / BUNDLE)]
    _run([*verify, str(release.sums)], published)
    other = published / "other"
    other.write_text(release.sums.read_text().replace("0", "1", 1))
    with pytest.raises(AssertionError, match="invalid signature"):
        _run([*verify, str(other)], published)


@pytest.mark.parametrize("program", ["nodedevice-agent", "nodedevice-operator"])
def test_pip_installs_from_the_index(published: Path, index: Service, tmp_path: Path, program: str) -> None:
    _run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], tmp_path)
    # this environment's pip: in twice the time, the one that Python comes with would do the same
    pip = [sys.executable, "-m", "pip", "--python", str(tmp_path / "venv"), "install", "--quiet"]
    # beside what this machine takes packages from, which has what they depend on
    _run([*pip, f"{program}=={_VERSION}"], tmp_path, PIP_EXTRA_INDEX_URL=f"http://{index.address}/simple/")
    said = _run([str(tmp_path / "venv/bin" / program), "--version"], tmp_path)
    assert said == f"{program}, version {_VERSION}\n"


def _cosign() -> str:
    return str(find(["cosign"])["cosign"])


def _run(command: list[str], folder: Path, **environment: str) -> str:
    environ = {
        **os.environ,
        "COSIGN_PASSWORD": _COSIGN_PASSWORD,
        "UV_PUBLISH_USERNAME": USER,
        "UV_PUBLISH_PASSWORD": PASSWORD,
        **environment,
    }
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
