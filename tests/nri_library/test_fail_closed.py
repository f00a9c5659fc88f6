"""A plugin that hangs or dies, with NRI's own library: no container is created without its device.

The library is that of containerd 2.4 (0.12.3), and the first ones that skip plugins whose connection is closed (0.12.4, 0.12.5).
Whatever was asked of the plugin when it failed, the creation fails. While no plugin is connected, the default validator alone
holds back containers, and of these the annotated ones: docs/delivery.md says so, and the last assertions of each test show it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION

from tests.cluster.build.binaries import find
from tests.nri_library.library import RELEASES, Created, Plugin, Runtime

REQUIRED = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
WITH_DEVICE = Created(("/dev/null",))
WITHOUT = Created()


@pytest.fixture(scope="module", params=RELEASES)
def library(request: pytest.FixtureRequest, progress: Callable[[str], None]) -> Path:
    name = RELEASES[request.param]
    return find([name], progress)[name]


@pytest.fixture(params=[True, False], ids=["validator", "no validator"])
def has_validator(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def runtime(library: Path, has_validator: bool, tmp_path: Path) -> Iterator[Runtime]:
    with Runtime(library, tmp_path, validator=has_validator) as runtime:
        yield runtime


def assert_like_away(runtime: Runtime, has_validator: bool) -> None:
    """No plugin is connected: containers that require it wait where the validator is on; others never do."""
    required = runtime.create("required", REQUIRED)
    assert ('required plugin "nodedevice" not present' in required.error) == has_validator
    assert has_validator or required == WITHOUT
    assert runtime.create("other", {}) == WITHOUT


@pytest.mark.parametrize(
    ("where", "how", "annotations"),
    [
        ("create_container", "stop", REQUIRED),
        ("create_container", "stop", {}),
        ("create_container", "kill", REQUIRED),
        ("validate", "stop", REQUIRED),
        ("validate", "kill", {}),
    ],
    ids=["hangs in creation", "hangs, not annotated", "dies in creation", "hangs in validation", "dies in validation"],
)
def test_a_plugin_that_fails_in_a_creation(
    runtime: Runtime, has_validator: bool, where: str, how: str, annotations: dict[str, str]
) -> None:
    with Plugin(runtime.socket, where, how) as plugin:
        assert runtime.plugin_connects() == ""
        failed = runtime.create("a", annotations)
        assert failed.devices == ()
        assert "plugin 10-nodedevice failed" in failed.error
        assert_like_away(runtime, has_validator)
        if how == "stop":
            plugin.resume()
            assert runtime.plugin_connects() == ""
            assert runtime.create("a", annotations) == WITH_DEVICE


def test_a_plugin_that_dies_between_its_response_and_the_validation(runtime: Runtime, has_validator: bool) -> None:
    """What it responded is carried out, or the creation fails."""
    with Plugin(runtime.socket, "responded", "kill"):
        assert runtime.plugin_connects() == ""
        created = runtime.create("a", REQUIRED)
        assert created == WITH_DEVICE or "10-nodedevice failed" in created.error
        assert_like_away(runtime, has_validator)


def test_a_plugin_that_hangs_in_the_first_list(runtime: Runtime, has_validator: bool) -> None:
    with Plugin(runtime.socket, "synchronized", "stop") as plugin:
        assert "deadline exceeded" in runtime.plugin_connects()
        assert_like_away(runtime, has_validator)
        plugin.resume()
        assert runtime.plugin_connects() == ""
        assert runtime.create("a", REQUIRED) == WITH_DEVICE


def test_a_plugin_that_hangs_between_creations(runtime: Runtime, has_validator: bool) -> None:
    with Plugin(runtime.socket) as plugin:
        assert runtime.plugin_connects() == ""
        assert runtime.create("a", REQUIRED) == WITH_DEVICE
        plugin.stop()
        failed = runtime.create("b", {})
        assert failed.devices == ()
        assert "plugin 10-nodedevice failed" in failed.error
        assert_like_away(runtime, has_validator)


def test_a_plugin_that_was_killed(runtime: Runtime, has_validator: bool) -> None:
    with Plugin(runtime.socket) as plugin:
        assert runtime.plugin_connects() == ""
        plugin.kill()
        created = runtime.create("a", REQUIRED)
        # the library may not have noticed it yet
        assert created.error or (created == WITHOUT and not has_validator)
        assert_like_away(runtime, has_validator)
