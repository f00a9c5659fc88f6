"""The chart as it is rendered for the demos: an outdated or edited copy is noticed, and rendered again."""

import shutil
from pathlib import Path

import pytest

from hack.cluster.chart import CHART
from hack.cluster.errors import ClusterError
from hack.cluster.local.stack import chart_values
from hack.demo import rendered_chart
from hack.demo.rendered_chart import SHARED

_RENDERED = [path.relative_to(CHART) for path in sorted(CHART.rglob("*")) if path.is_file()]
_LEFT_OUT = ("README.md", "values.schema.json", "NOTES.txt")


class _Rendered(Exception):
    """Helm would have been asked."""


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the chart and of what was rendered of it, to be changed."""

    def render(values: object) -> object:
        raise _Rendered

    chart, folder = tmp_path / "chart", tmp_path / "manifests"
    shutil.copytree(CHART, chart)
    shutil.copytree(rendered_chart.FOLDER, folder)
    monkeypatch.setattr(rendered_chart, "CHART", chart)
    monkeypatch.setattr(rendered_chart, "FOLDER", folder)
    monkeypatch.setattr(rendered_chart, "installed_manifests", render)
    monkeypatch.setattr(rendered_chart, "find", lambda names, progress: None)
    return chart


def test_nothing_changed_and_helm_is_not_asked(chart: Path) -> None:
    rendered_chart.main()


@pytest.mark.parametrize("file", _RENDERED, ids=str)
def test_each_file_of_the_chart_counts(chart: Path, file: Path) -> None:
    """But for those that no template reads."""
    (chart / file).write_bytes((chart / file).read_bytes() + b"\n")
    if any(part in _LEFT_OUT for part in file.parts):
        rendered_chart.main()
        return
    with pytest.raises(_Rendered):
        rendered_chart.main()


@pytest.mark.parametrize("change", ["another template", "one template less", "edited by hand", "not there"])
def test_each_way_to_differ(chart: Path, change: str) -> None:
    [first, *_] = sorted(rendered_chart.FOLDER.iterdir())
    match change:
        case "another template":
            (chart / "templates/more.yaml").touch()
        case "one template less":
            (chart / "templates/namespace.yaml").unlink()
        case "edited by hand":
            first.write_text(first.read_text().replace("name: nodedevice-agents", "name: elsewhere", 1))
        case "not there":
            first.unlink()
    with pytest.raises(_Rendered):
        rendered_chart.main()


def test_values_that_no_demo_has_are_refused() -> None:
    with pytest.raises(ClusterError, match="make generate"):
        rendered_chart.load(chart_values(["example.com/other"]))


def test_a_second_scheduler_comes_on_top() -> None:
    with_scheduler = rendered_chart.load(chart_values([SHARED]))
    without = rendered_chart.load(chart_values(()))
    assert [each for each in with_scheduler if each in without] == without
    assert len(with_scheduler) > len(without)
