"""Fixtures and rules that every test shares; the ones for a control plane start it only when a test asks for it."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests import examples, timeouts
from tests.cluster.processes.loopback import reach_loopback_directly
from tests.conformance.report import KubeletRows

if TYPE_CHECKING:
    # imported by the fixtures that start it: most runs are of tests without a cluster, and do not wait for its libraries
    from tests.cluster.control_plane.control_plane import ControlPlane

examples.load_profile()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kubelet-rows", action="store_true", help="run the tests that show rows of the kubelet's behaviour"
    )


def pytest_configure(config: pytest.Config) -> None:
    reach_loopback_directly()
    is_alone = bool(config.getoption("--kubelet-rows"))
    rows = KubeletRows(is_alone=is_alone, is_strict=is_alone or "ORACLE_SEQUENCES" in os.environ)
    config.pluginmanager.register(rows, "kubelet-rows")
    config.pluginmanager.register(timeouts, "timeouts-by-folder")


@pytest.hookimpl(tryfirst=True)  # before pytest sorts out what -m deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "control_plane" in getattr(item, "fixturenames", ()):
            item.add_marker("cluster")
        # these mount, chown or make device files: the rest of the suite is for people who are not root, too
        if item.get_closest_marker("root") is not None and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason=f"{item.name} needs root: run pytest as root"))


@pytest.fixture(scope="session")
def progress(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Shows a line at once. What is built the first time takes minutes: a silent test run would look hung."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    return show


@pytest.fixture(scope="session")
def control_plane(progress: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One real control plane for the whole session. What a test makes outside its namespace it removes itself."""
    from tests.cluster.control_plane.control_plane import ControlPlane

    with ControlPlane.start(tmp_path_factory.mktemp("cluster") / "control-plane", progress) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A fresh namespace, in which pods can be made at once; removed afterwards."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.add_namespace(name)
    yield name
    control_plane.remove_namespace(name, grace_seconds=0)


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane, progress: Callable[[str], None]) -> ControlPlane:
    """The session's control plane with the project's chart applied: kinds, roles, policies."""
    from tests.cluster.build.binaries import find
    from tests.cluster.chart import install_chart

    find(["helm"], progress)
    install_chart(control_plane)
    return control_plane
