"""The kinds of panels in all dashboards; each has a title, a description, and a query.

Sets the common options of all panels (data source, legend, labels in tables). Contains no metric names.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as queries

SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="$datasource")
GOOD, WARN, BAD, NEUTRAL = "green", "orange", "red", "blue"
# a ratio
PERCENT: Final = "percentunit"
SECONDS: Final = "s"
BYTES: Final = "bytes"
PER_SECOND: Final = "reqps"
COUNT: Final = "short"
# a time in milliseconds since 1970
MOMENT: Final = "dateTimeFromNow"


def any_is_bad(color: str = BAD) -> list[models.Threshold]:
    return [models.Threshold(None, GOOD), models.Threshold(1, color)]


def neutral() -> list[models.Threshold]:
    return [models.Threshold(None, NEUTRAL)]


def steps(warn: float, bad: float) -> list[models.Threshold]:
    """Good, then a warning from here on, then bad."""
    return [models.Threshold(None, GOOD), models.Threshold(warn, WARN), models.Threshold(bad, BAD)]


def number(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = COUNT,
    thresholds: list[models.Threshold] | None = None,
    width: int = 4,
) -> stat.Panel:
    """Return a panel with one current number, in a colour for good or bad."""
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(4)
        .span(width)
        .unit(unit)
        .graph_mode(shapes.BigValueGraphMode.AREA)
        .color_mode(shapes.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(thresholds or neutral()))
        .with_target(_query("A", expr))
    )


def over_time(
    title: str,
    description: str,
    exprs: Mapping[str, str],
    *,
    unit: str = COUNT,
    width: int = 12,
    thresholds: list[models.Threshold] | None = None,
    stacked: bool = False,
) -> timeseries.Panel:
    """Return a panel with lines over time. exprs: queries by legend (with Grafana's {{label}}). thresholds: drawn as lines."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(8)
        .span(width)
        .unit(unit)
        .min(0)
        .fill_opacity(20 if stacked else 8)
        .show_points(shapes.VisibilityMode.NEVER)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL))
    if thresholds is not None:
        panel.thresholds(_thresholds(thresholds))
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(shapes.GraphThresholdsStyleMode.DASHED))
    for place, (legend, expr) in enumerate(exprs.items()):
        panel.with_target(_query(chr(ord("A") + place), expr, legend))
    return panel


def bars(
    title: str,
    description: str,
    legend: str,
    expr: str,
    *,
    unit: str = COUNT,
    width: int = 12,
    thresholds: list[models.Threshold] | None = None,
    most: float | None = None,
) -> bargauge.Panel:
    """Return a panel with a bar for the current value of each series. most: value of a full bar."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(8)
        .span(width)
        .unit(unit)
        .min(0)
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.GRADIENT)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(thresholds or neutral()))
        .with_target(_query("A", expr, legend).instant())
    )
    return panel if most is None else panel.max(most)


def listing(
    title: str,
    description: str,
    expr: str,
    columns: Mapping[str, str],
    *,
    links: Mapping[str, str] | None = None,
    unit: str = "",
    ascending: bool = False,
    width: int = 12,
    height: int = 8,
) -> table.Panel:
    """Return a table with a row for each series, the largest value first unless ascending.

    columns: label (or "Value") to heading, in order; without a "Value" that is not shown, and rows come by the first column.
    links: from a heading's cells to an address. unit: of the value.
    """
    order = {label: place for place, label in enumerate(columns)}
    hidden = {"Time": True, "__name__": True} | ({} if "Value" in columns else {"Value": True})
    organize = {"excludeByName": hidden, "indexByName": order, "renameByName": dict(columns)}
    sorted_by = columns.get("Value") or next(iter(columns.values()))
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .height(height)
        .span(width)
        .no_value("none")
        .filterable(True)
        .sort_by([common.TableSortByFieldState().display_name(sorted_by).desc(not ascending)])
        .with_target(_query("A", expr).instant().format(queries.PromQueryFormat.TABLE))
        .with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
    )
    if unit:
        panel.override_by_name(columns["Value"], [models.DynamicConfigValue(id_val="unit", value=unit)])
    for heading, url in (links or {}).items():
        link = {"title": f"Open {heading.lower()}", "url": url}
        panel.override_by_name(heading, [models.DynamicConfigValue(id_val="links", value=[link])])
    return panel


def row(title: str) -> dashboard.Row:
    return dashboard.Row(title)


def _query(letter: str, expr: str, legend: str = "") -> prometheus.Dataquery:
    query = prometheus.Dataquery().ref_id(letter).expr(expr).datasource(SOURCE)
    return query.legend_format(legend) if legend else query


def _thresholds(levels: Sequence[models.Threshold]) -> dashboard.ThresholdsConfig:
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(list(levels))


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .display_mode(shapes.LegendDisplayMode.TABLE)
        .placement(shapes.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
