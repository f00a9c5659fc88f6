"""A release's folder and nothing else: its archives on the node, its chart by each Helm, without a registry."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from nodedevice_api.names import AGENTS_NAMESPACE, GROUP

from hack.release import manifest
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.e2e.chart.cluster import ChartCluster, Release
from tests.e2e.chart.workloads import GPU, built_in, config, simulated, user
from tests.e2e.recording import RanOn

_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]


@pytest.fixture(scope="module")
def loaded(chart_cluster: ChartCluster, dist: Path) -> Path:
    """A release's folder, its images loaded as docs/releasing.md says."""
    for program, digest in _digests(chart_cluster, dist).items():
        name = f"docker.io/library/{program}"
        chart_cluster.node.import_images(dist / f"{program}-{_VERSION}.oci.tar")
        chart_cluster.node.tag_image(f"{name}:{_VERSION}", f"{name}@{digest}")
    return dist


# Helm 3 deletes the pod of a test that has passed before it would read its logs
@pytest.mark.parametrize(
    ("helm", "flags", "passed"),
    [
        ("helm", ["--logs"], r"ok .*example\.com\.gpu .*Ready"),
        ("helm3", ["--hide-notes"], r"nodedevice-check\n.*\n.*\nPhase: +Succeeded"),
    ],
    ids=["Helm 4", "Helm 3"],
)
def test_installs_tests_upgrades_and_uninstalls(
    cluster: ChartCluster, loaded: Path, tmp_path: Path, helm: str, flags: list[str], passed: str, ran_on: RanOn
) -> None:
    chart = loaded / f"nodedevice-{_VERSION}.tgz"
    by_helm = Release(cluster.control_plane, tmp_path / "helm", helm)
    by_helm.install(built_in(2), chart=chart)
    cluster.wait_capacity(GPU, 2)
    ran_on(lambda: cluster.described(by_helm))
    cluster.run(user("holds", {GPU: 1}))
    assert re.search(passed, by_helm.test(*flags))
    by_helm.upgrade(built_in(3), chart=chart)
    cluster.wait_capacity(GPU, 3)
    cluster.run(user("comes-after", {GPU: 2}))
    assert re.search(passed, by_helm.test(*flags))
    by_helm.uninstall()
    assert not by_helm.is_installed()
    assert GPU not in cluster.capacity()
    assert {name for name in cluster.names_of("crds") if GROUP in name}, "the kinds went with the release"


def test_plain_manifests_install_and_remove_as_they_say(cluster: ChartCluster, loaded: Path, ran_on: RanOn) -> None:
    """The commands that install.yaml begins with; the Job runs on the node. tests/chart applies client-side and server-side."""
    install, uninstall, wait, delete = re.findall(r"^#   (kubectl .*)$", (loaded / manifest.INSTALL).read_text(), re.M)
    _typed(cluster, loaded, install)
    cluster.apply(config("gpus", simulated(2)))
    cluster.wait_capacity(GPU, 2)
    cluster.run(user("holds", {GPU: 1}))
    ran_on(cluster.described)
    before = cluster.containers("default")
    assert "created" not in _typed(cluster, loaded, install)
    for command in (uninstall, wait, delete):
        _typed(cluster, loaded, command)
    assert GPU not in cluster.capacity()
    assert not {name for name in cluster.names_of("crds") if GROUP in name}
    assert not {SYSTEM_NAMESPACE, AGENTS_NAMESPACE} & cluster.names_of("namespaces")
    assert cluster.containers("default") == before, "a pod was hurt"


def _typed(cluster: ChartCluster, folder: Path, command: str) -> str:
    program, *words = shlex.split(command)
    assert program == "kubectl"
    return cluster.control_plane.kubectl(*(str(folder / word) if word.endswith(".yaml") else word for word in words))


def _digests(cluster: ChartCluster, dist: Path) -> dict[str, str]:
    """By image, as the chart names them."""
    values = yaml.safe_load(cluster.release.shown_values(dist / f"nodedevice-{_VERSION}.tgz"))
    images = (values["agents"]["image"], values["operator"]["image"])
    return {image["repository"]: image["digest"] for image in images}
