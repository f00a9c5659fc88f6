"""Devices of the generic plugin on a real node: a container starts again only with its own."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.e2e.real_node.device_plugins import device_files, make_device_file
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod

LINES = "example.com/lines"
_FILES = ("/dev/nodedevice-line0", "/dev/nodedevice-line1")


@pytest.fixture
def files() -> Iterator[dict[str, str]]:
    """Two device files with numbers of this machine's, by path."""
    numbers = dict(zip(_FILES, (other.number for other in device_files()), strict=False))
    with ExitStack() as undo:
        for path, number in numbers.items():
            make_device_file(path, number)
            undo.callback(Path(path).unlink, missing_ok=True)
        yield numbers


def test_a_container_does_not_start_again_without_its_device(
    our_node: NodeUnderTest, files: dict[str, str], tmp_path: Path
) -> None:
    """Another device has its name meanwhile. It is given to nobody's container, and to this one when its own is back."""
    config = tmp_path / "agent.yaml"
    generic = [{"resourceName": LINES, "groups": [{"paths": [{"path": "/dev/nodedevice-line*"}]}]}]
    config.write_text(yaml.safe_dump({"plugins": {"generic": generic}}))
    with our_node.agent_with({"--config": str(config)}):
        our_node.wait_allocatable(LINES, 2)
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
