"""Where programs come from. A script stands in for Go: what it would take minutes to compile is not the point here."""

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.cluster.build.cache import cache_folder
from tests.cluster.build.pins import family_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no KUBEBUILDER_ASSETS."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("KUBERNETES", raising=False)
    monkeypatch.setenv("BINARIES", "build")
    return cache_folder()


def test_another_kubernetes_has_its_own_module_and_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = family_of("kube-apiserver")
    pinned_key = kubernetes.key
    monkeypatch.setenv("KUBERNETES", "1.36.4")
    assert kubernetes.version == "v1.36.4"
    assert kubernetes.key != pinned_key
    assert "require k8s.io/kubernetes v1.36.4" in kubernetes.go_mod
    assert "k8s.io/api => k8s.io/api v0.36.4" in kubernetes.go_mod
    assert "37.1" not in kubernetes.go_mod
    assert family_of("etcd").is_pinned


def test_a_changed_source_is_another_program(tmp_path: Path) -> None:
    oracle = family_of("oracle")
    assert {source.name for source in oracle.sources} >= {"main.go"}
    copied = shutil.copytree(oracle.pinned_folder, tmp_path / "oracle")
    other = dataclasses.replace(oracle, folder=copied)
    assert other.key == oracle.key
    with (copied / "main.go").open("a") as source:
        source.write("// changed")
    assert other.key != oracle.key
