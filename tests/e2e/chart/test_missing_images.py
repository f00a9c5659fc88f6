"""An install whose nodes cannot get the images: `helm test` ends after a minute and names what is missing."""

import re
import time

import pytest

from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.errors import CommandError
from tests.e2e.chart.cluster import ChartCluster

# nothing listens there, so the answer comes at once
_REGISTRY = "127.0.0.1:9/team"


def test_after_a_minute_it_says_what_is_missing(cluster: ChartCluster) -> None:
    """Beside it, for those who ask further, Events name the image that could not be pulled."""
    cluster.release.install({"image": {"registry": _REGISTRY}}, "--wait=false", chart=CHART)
    began = time.monotonic()
    with pytest.raises(CommandError, match="Job/nodedevice-system/nodedevice-image-pull not ready") as failed:
        cluster.release.test("--logs")
    assert time.monotonic() - began < 90, failed.value
    events = cluster.control_plane.kubectl("get", "events", "-n", SYSTEM_NAMESPACE)
    assert re.search(rf'nodedevice-image-pull-\w+ +Failed to pull image "{_REGISTRY}/nodedevice-', events), events
    # nothing of the test stays
    cluster.wait(lambda: not cluster.names_of("jobs", "-n", SYSTEM_NAMESPACE), "the test's Job is gone")
