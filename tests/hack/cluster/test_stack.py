"""In which order the product comes up."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.local import stack


class _Stopped(Exception):
    """As far as these tests go."""


def test_what_is_built_is_built_before_anything_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def find(names: Iterable[str], say: Callable[[str], None]) -> None:
        built.extend(names)

    def open_cluster(folder: Path, say: Callable[[str], None]) -> Cluster:
        raise _Stopped

    monkeypatch.setattr(stack, "find", find)
    with pytest.raises(_Stopped):
        stack.Stack.start(tmp_path, open_cluster=open_cluster)
    assert built == ["helm"]
