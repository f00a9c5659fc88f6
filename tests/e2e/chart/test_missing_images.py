"""An install whose nodes cannot get the images: `helm test` ends after a minute and names what is missing, by each Helm."""

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.errors import CommandError
from tests.e2e.chart.cluster import ChartCluster, Release

# nothing listens there, so the answer comes at once
_REGISTRY = "127.0.0.1:9/team"


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    """The chart with a shorter deadline, where a minute has been shown before."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    hook = chart / "templates/hook-check.yaml"
    text, found = re.subn(r"activeDeadlineSeconds: \d+", "activeDeadlineSeconds: 8", hook.read_text())
    assert found == 1
    hook.write_text(text)
    return chart


def test_helm_4_says_after_a_minute_what_is_missing(cluster: ChartCluster) -> None:
    """Beside it, for those who ask further, Events name the image that could not be pulled."""
    _install(cluster.release, CHART)
    began = time.monotonic()
    with pytest.raises(CommandError, match="Job/nodedevice-system/nodedevice-image-pull not ready") as failed:
        cluster.release.test("--logs")
    assert time.monotonic() - began < 90, failed.value
    events = cluster.control_plane.kubectl("get", "events", "-n", SYSTEM_NAMESPACE)
    assert re.search(rf'nodedevice-image-pull-\w+ +Failed to pull image "{_REGISTRY}/nodedevice-', events), events
    # nothing of the test stays
    cluster.wait(lambda: not cluster.names_of("jobs", "-n", SYSTEM_NAMESPACE), "the test's Job is gone")


def test_helm_3_says_the_same(cluster: ChartCluster, impatient: Path, tmp_path: Path) -> None:
    by_helm = Release(cluster.control_plane, tmp_path / "helm", "helm3")
    _install(by_helm, impatient)
    with pytest.raises(CommandError, match="job nodedevice-image-pull failed: DeadlineExceeded") as failed:
        by_helm.test("--hide-notes")
    assert re.search(r"TEST SUITE: +nodedevice-image-pull\n.*\n.*\nPhase: +Failed", failed.value.stdout)


def _install(release: Release, chart: Path) -> None:
    release.install({"image": {"registry": _REGISTRY}}, "--wait=false", chart=chart)
