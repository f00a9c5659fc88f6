"""Devices of the generic plugin on a real node: each is given once, and a container starts again only with its own."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.e2e.real_node.device_plugins import device_files, make_device_file
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

LINES, LINKS = "example.com/lines", "example.com/links"
_FILES = ("/dev/nodedevice-line0", "/dev/nodedevice-line1")
_LINK = "/dev/nodedevice-link"


@pytest.fixture
def files() -> Iterator[dict[str, str]]:
    """Two device files with numbers of this machine's, by path, and a link to the first one."""
    numbers = dict(zip(_FILES, (other.number for other in device_files()), strict=False))
    with ExitStack() as undo:
        for path, number in numbers.items():
            make_device_file(path, number)
            undo.callback(Path(path).unlink, missing_ok=True)
        Path(_LINK).symlink_to(Path(_FILES[0]).name)
        undo.callback(Path(_LINK).unlink)
        yield numbers


@contextmanager
def serving(node: NodeUnderTest, folder: Path) -> Iterator[None]:
    """The agent offers the files by their names in one resource, and the first one by its link in another."""
    groups = {LINES: "/dev/nodedevice-line*", LINKS: _LINK}
    generic = [{"resourceName": name, "groups": [{"paths": [{"path": path}]}]} for name, path in groups.items()]
    config = folder / "agent.yaml"
    config.write_text(yaml.safe_dump({"plugins": {"generic": generic}}))
    with node.agent_with({"--config": str(config)}):
        node.wait_allocatable(LINES, 2)
        yield


def test_a_device_with_two_names_is_given_once(our_node: NodeUnderTest, files: dict[str, str], tmp_path: Path) -> None:
    with serving(our_node, tmp_path):
        our_node.wait_allocatable(LINKS, 0)
        (device,) = our_node.node_device(LINKS)["devices"]
        assert device["reason"] == "InOtherUse"
        our_node.run(pod("both", [container("main", {LINES: 2})]))
        assert {path for path in our_node.seen("both").nodes if path in files} == {*files}
        our_node.until(lambda: "both has it now" in _message(our_node), "it names the pod")
        our_node.delete("both")


def _message(node: NodeUnderTest) -> str:
    return str(node.node_device(LINKS)["devices"][0]["message"])


def test_a_container_does_not_start_again_without_its_device(
    our_node: NodeUnderTest, files: dict[str, str], tmp_path: Path
) -> None:
    """Another device has its name meanwhile. It is given to nobody's container, and to this one when its own is back."""
    with serving(our_node, tmp_path):
        our_node.run(pod("line", [container("main", {LINES: 1})]))
        (path,) = (path for path in our_node.seen("line").nodes if path in files)
        Path(path).unlink()
        our_node.wait_numbers(LINES, healthy=1)
        os.kill(our_node.pid_of("line", "main"), signal.SIGKILL)
        our_node.wait_event("line", f"device {path.removeprefix('/dev/')} of {LINES} is not there")
        assert len(our_node.starts("line")) == 1
        make_device_file(path, files[path])
        our_node.wait_starts("line", 2)
        our_node.delete("line")
