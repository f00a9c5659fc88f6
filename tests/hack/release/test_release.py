"""What `make release` leaves in its folder, without the images: reproducible, complete, or nothing."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from hack.release import __main__ as command
from hack.release.chart import with_source
from hack.release.errors import ReleaseError

_CHART = Path(__file__).parents[3] / "charts" / "nodedevice"


@pytest.fixture(scope="session")
def dist(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("first") / "dist"
    command.release(project, "0.1.0", "registry.example.com/team", target, with_images=False)
    return target


def test_has_wheels_sdists_chart_notes_and_sums_that_verify(dist: Path) -> None:
    names = {path.name for path in dist.iterdir()}
    for distribution in ("api", "common", "operator", "agent"):
        name = f"nodedevice_{distribution}-0.1.0"
        assert {f"{name}-py3-none-any.whl", f"{name}.tar.gz"} <= names
    assert {"nodedevice-0.1.0.tgz", "install.yaml", "uninstall.yaml", "NOTES.md"} <= names
    assert {"kubectl-nodedevice.pyz", "kubectl-nodedevice-0.1.0.zip", "nodedevice.krew.yaml"} <= names
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=dist, check=True)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(names) - 1


def test_two_runs_give_the_same_bytes(project: Path, dist: Path, tmp_path: Path) -> None:
    command.release(project, "0.1.0", "registry.example.com/team", tmp_path / "dist", with_images=False)
    assert (tmp_path / "dist" / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_plain_manifests_name_the_charts_images(dist: Path) -> None:
    for name, images in (("install.yaml", 2), ("uninstall.yaml", 1)):
        text = (dist / name).read_text()
        named = set(re.findall(r'image: "(.*)"', text))
        assert named <= {f"registry.example.com/team/nodedevice-{program}:0.1.0" for program in ("agent", "operator")}
        assert len(named) == images
        assert "name no registry" not in text
        assert f"  {name}\n" in (dist / "SHA256SUMS").read_text()


def test_the_charts_sbom_names_its_images(dist: Path) -> None:
    bill = json.loads((dist / "nodedevice-0.1.0.cdx.json").read_text())
    assert bill["metadata"]["component"]["purl"] == "pkg:helm/nodedevice@0.1.0"
    named = {each["name"]: each["purl"] for each in bill["components"]}
    assert named.keys() == {"nodedevice-agent", "nodedevice-operator", "kube-scheduler"}
    assert "repository_url=registry.example.com/team/nodedevice-agent" in unquote(named["nodedevice-agent"])


def test_provenance_names_the_commit_and_the_arguments(project: Path, dist: Path) -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, check=True, capture_output=True, text=True)
    built = json.loads((dist / "provenance.json").read_text())["buildDefinition"]
    (source,) = built["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": head.stdout.strip()}
    assert built["externalParameters"] == {"version": "0.1.0", "registry": "registry.example.com/team", "source": ""}


def test_artifact_hub_finds_what_it_shows() -> None:
    source = "https://git.example.com/team/nodedevice"
    chart = yaml.safe_load(with_source((_CHART / "Chart.yaml").read_text(), source))
    assert (chart["home"], chart["sources"]) == (source, [source])
    assert chart["icon"].startswith("data:image/svg+xml;base64,")
    described = {each["name"]: each for each in yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])}
    kinds = [yaml.safe_load(path.read_text()) for path in (_CHART / "crds").glob("*.yaml")]
    assert described.keys() == {kind["metadata"]["name"] for kind in kinds}
    for kind in kinds:
        shown = described[kind["metadata"]["name"]]
        assert (shown["kind"], shown["version"]) == (kind["spec"]["names"]["kind"], kind["spec"]["versions"][0]["name"])


def test_a_dirty_tree_is_refused_and_the_former_release_stays(
    changed: Callable[[str, str], Path], tmp_path: Path
) -> None:
    target = tmp_path / "dist"
    target.mkdir()
    (target / "former").touch()
    with pytest.raises(ReleaseError, match=r"1 files differ from the commit, such as README\.md: commit or stash"):
        command.release(changed("README.md", "changed"), "0.1.0", "", target, with_images=False)
    assert [path.name for path in target.iterdir()] == ["former"]


@pytest.mark.parametrize("registry", ["https://registry.example.com", "registry.example.com/", "a b"])
def test_a_registry_that_is_no_prefix_leaves_nothing(project: Path, tmp_path: Path, registry: str) -> None:
    with pytest.raises(ReleaseError, match="is not a prefix of an image: write it as"):
        command.release(project, "0.1.0", registry, tmp_path / "dist", with_images=False)
    assert list(tmp_path.iterdir()) == []
