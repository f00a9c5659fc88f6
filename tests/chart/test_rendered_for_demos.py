"""What is committed of the chart for the demos is what Helm renders today."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from hack.demo.rendered_chart import SHARED, load
from tests.cluster.chart import installed_manifests
from tests.cluster.local.stack import chart_values


@pytest.mark.parametrize("scheduled", [(), (SHARED,)], ids=["one scheduler", "two schedulers"])
def test_it_is_what_helm_renders(scheduled: Sequence[str]) -> None:
    values = chart_values(scheduled)
    assert _as_texts(load(values)) == _as_texts(installed_manifests(values))


def _as_texts(manifests: Iterable[Mapping[str, Any]]) -> set[str]:
    """In any order: what depends on what, kubectl knows."""
    return {json.dumps(each, sort_keys=True) for each in manifests}
