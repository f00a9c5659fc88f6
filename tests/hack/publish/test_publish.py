"""`make publish` into a registry and an index on this machine: what it refuses, and that nothing is installable then.

The release is whole but for its images, which hold one small file; tests/e2e/chart/release/test_release_published.py publishes
the real ones and installs them.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from hack.release import __main__ as release_command
from hack.release import images, oci
from hack.release.sums import write
from tests.cluster.build.binaries import find
from tests.cluster.processes.processes import reserved_ports
from tests.hack.publish.services import PASSWORD, USER, Service, package_index, registry
from tests.hack.release.committed import committed_copy

_ROOT = Path(__file__).parents[3]
_USER = {
    "REGISTRY_USERNAME": USER,
    "REGISTRY_PASSWORD": PASSWORD,
    "UV_PUBLISH_USERNAME": USER,
    "UV_PUBLISH_PASSWORD": PASSWORD,
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the registry, whose address the release's chart names."""
    with reserved_ports(1) as (port,):
        yield port


@pytest.fixture
def to(tmp_path: Path, port: int) -> Iterator[Service]:
    """An empty registry."""
    (tmp_path / "r").mkdir()
    with registry(tmp_path / "r", port) as service:
        yield service


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Service]:
    """An empty index."""
    (tmp_path / "i").mkdir()
    with package_index(tmp_path / "i") as service:
        yield service


@pytest.fixture(scope="module")
def made(port: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(images, "build", _small_images)
        project = committed_copy(folder / "project")
        release_command.release(project, "0.1.0", f"127.0.0.1:{port}/team", folder / "dist")
    return folder / "dist"


@pytest.fixture
def dist(made: Path, tmp_path: Path) -> Path:
    """A release for that registry, to be published or spoiled."""
    return shutil.copytree(made, tmp_path / "dist")


def _small_images(_tree: Path, made: Path, scratch: Path, tag: str, epoch: int) -> dict[str, str]:
    (scratch / "files").mkdir(parents=True)
    digests = {}
    for program in images.DOCKERFILES:
        (scratch / "files/name").write_text(program)
        layer = oci.layer(scratch / "files", scratch / f"{program}.tar.gz", epoch)
        for architecture in images.ARCHITECTURES:
            (made / f"{program}-{tag}-{architecture}.cdx.json").write_text("{}")
        layers = {architecture: [layer] for architecture in images.ARCHITECTURES}
        digests[program] = oci.write(made / f"{program}-{tag}.oci.tar", f"{program}:{tag}", layers, {}, epoch)
    return digests


def _publish(dist: Path, *arguments: str, environ: Mapping[str, str] = _USER) -> "subprocess.CompletedProcess[str]":
    """What `make publish` runs, without a log-in of this machine's user."""
    home = {"HOME": str(dist.parent), "DOCKER_CONFIG": str(dist.parent), "XDG_CACHE_HOME": _cache()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ACTIONS_")}
    command = [sys.executable, "-m", "hack.publish", *arguments, "--source", str(dist)]
    return subprocess.run(
        command, cwd=_ROOT, env={**inherited, **home, **environ}, capture_output=True, text=True, check=False
    )


def _cache() -> str:
    return os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


def _to_index(index: Service) -> tuple[str, ...]:
    return "--index", f"http://{index.address}/", "--index-check", f"http://{index.address}/simple/"


def _refused(done: "subprocess.CompletedProcess[str]") -> str:
    """The sentence that it ended with."""
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


def _is_empty(to: Service) -> bool:
    return list(json.loads(to.answer("/v2/_catalog"))["repositories"]) == []


def _tags(to: Service, repository: str) -> list[str]:
    try:
        return list(json.loads(to.answer(f"/v2/team/{repository}/tags/list"))["tags"])
    except urllib.error.HTTPError as exc:
        if exc.code == HTTPStatus.NOT_FOUND:
            return []
        raise


def _crane(to: Service, *arguments: str) -> str:
    folder = to.folder / "login"
    folder.mkdir(exist_ok=True)
    crane = str(find(["crane"])["crane"])
    environ = {**os.environ, "DOCKER_CONFIG": str(folder)}
    login = [crane, "auth", "login", to.address, "--username", USER, "--password", PASSWORD]
    subprocess.run(login, env=environ, check=True, capture_output=True)
    return subprocess.run([crane, *arguments], env=environ, check=True, capture_output=True, text=True).stdout


def test_a_changed_file_is_found_before_anything_is_sent(dist: Path, to: Service) -> None:
    with (dist / "nodedevice-agent-0.1.0.oci.tar").open("ab") as archive:
        archive.write(b"x")
    said = _refused(_publish(dist, f"{to.address}/team", "--unsigned"))
    assert said == (
        "publish: nodedevice-agent-0.1.0.oci.tar is not what SHA256SUMS says: it was changed after the release: "
        "make it again with `make release`"
    )
    assert _is_empty(to)


def test_images_that_the_chart_does_not_name(dist: Path, to: Service) -> None:
    shutil.copy(dist / "nodedevice-operator-0.1.0.oci.tar", dist / "nodedevice-agent-0.1.0.oci.tar")
    write(dist)
    said = _refused(_publish(dist, f"{to.address}/team", "--unsigned"))
    assert "the chart names another nodedevice-agent than" in said
    assert _is_empty(to)


def test_without_a_log_in_nothing_is_sent(dist: Path, to: Service, index: Service) -> None:
    said = _refused(_publish(dist, f"{to.address}/team", "--unsigned", *_to_index(index), environ={}))
    assert said.startswith(f"publish: {to.address}/team was not published to (")
    assert ": log in: REGISTRY_USERNAME and REGISTRY_PASSWORD" in said
    assert _is_empty(to)
    assert list((index.folder / "packages").iterdir()) == []


def test_an_index_that_refuses_leaves_nothing_to_install(dist: Path, to: Service, index: Service) -> None:
    """The images are there by digests that nobody knows, without a tag; the same command goes on."""
    wrong = {**_USER, "UV_PUBLISH_PASSWORD": "wrong"}
    said = _refused(_publish(dist, f"{to.address}/team", "--unsigned", *_to_index(index), environ=wrong))
    assert said.startswith(f"publish: http://{index.address}/ was not published to (")
    assert ": log in: " in said
    catalog: Any = json.loads(to.answer("/v2/_catalog"))["repositories"]
    assert catalog == ["team/nodedevice-agent", "team/nodedevice-operator"]
    assert [_tags(to, repository.removeprefix("team/")) for repository in catalog] == [[], []]
    assert _publish(dist, f"{to.address}/team", "--unsigned", *_to_index(index)).returncode == 0
    assert _tags(to, "nodedevice") == ["0.1.0"]


def test_a_version_that_is_there_is_not_replaced(dist: Path, to: Service) -> None:
    assert _publish(dist, f"{to.address}/team", "--unsigned").returncode == 0
    operator, agent = (f"{to.address}/team/nodedevice-{program}" for program in ("operator", "agent"))
    _crane(to, "copy", f"{operator}:0.1.0", f"{agent}:0.1.0")
    said = _refused(_publish(dist, f"{to.address}/team", "--unsigned"))
    assert said.startswith(f"publish: {agent}:0.1.0 is there with other content: release another VERSION")
    assert _crane(to, "digest", f"{agent}:0.1.0") == _crane(to, "digest", f"{operator}:0.1.0")
