"""A release, made once; its cluster is another than that of the chart's other tests."""

from pathlib import Path

import pytest
import yaml

from hack.release.__main__ import release
from tests.cluster.chart import CHART
from tests.hack.release.committed import committed_copy

_LOGS = Path(__file__).parents[4] / "build" / "e2e" / "release"


@pytest.fixture(scope="package")
def logs() -> Path:
    return _LOGS


@pytest.fixture(scope="package")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the working tree, for no registry."""
    folder = tmp_path_factory.mktemp("release")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    release(committed_copy(folder / "project"), version, "", folder / "dist")
    return folder / "dist"
