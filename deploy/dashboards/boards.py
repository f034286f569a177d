"""Panels and dashboards in the project's manner, on grafana-foundation-sdk: what both boards have in common.

Every panel has a title, a description, a unit and a legend; every query is on the datasource variable; rates are over
$__rate_interval. check.py holds the generated JSON to the dashboard linter's rules, whoever wrote it.
"""
from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
HALF, THIRD, QUARTER, SIXTH = 12, 8, 6, 4
COLUMNS = 24


class Board:
    """Panels in reading order, packed into rows of 24 columns; ids count up, so that a regenerated board is the same."""

    def __init__(self, uid, title, description, selector):
        self.selector = selector
        self.next_id = 1
        self.x = self.y = self.row_height = 0
        self.board = (
            dashboard.Dashboard(title)
            .uid(uid)
            .description(description)
            .tags(["crowdsurf"])
            .readonly()
            .refresh("30s")
            .time("now-1h", "now")
            .timezone("browser")
            .tooltip(models.DashboardCursorSync.CROSSHAIR)
            .with_variable(dashboard.DatasourceVariable("datasource").label("Data Source").type("prometheus"))
        )

    def variable(self, name, label, query, multi):
        variable = (
            dashboard.QueryVariable(name)
            .label(label)
            .datasource(SOURCE)
            .query(query)
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
        )
        if multi:
            variable = variable.multi(True).include_all(True).all_value(".+")
        self.board = self.board.with_variable(variable)

    def marks(self, name, color, expr):
        """Vertical marks where `expr` has a value."""
        self.board = self.board.annotation(
            dashboard.AnnotationQuery()
            .name(name)
            .datasource(SOURCE)
            .enable(True)
            .icon_color(color)
            .expr(self.with_selector(expr)))

    def row(self, title):
        self.close_row()
        self.board = self.board.with_row(
            dashboard.Row(title).id(self.take_id()).grid_pos(models.GridPos(h=1, w=COLUMNS, x=0, y=self.y)))
        self.y += 1

    def close_row(self):
        self.y += self.row_height
        self.x = self.row_height = 0

    def take_id(self):
        self.next_id += 1
        return self.next_id - 1

    def with_selector(self, expr):
        """`metric{}` stands for the board's selector, `metric{a="b"}` adds to it."""
        return expr.replace("{}", "{" + self.selector + "}").replace("{+", "{" + self.selector + ", ")

    def place(self, panel, title, description, unit, queries, width, height):
        if self.x + width > COLUMNS:
            self.close_row()
        panel = (
            panel.id(self.take_id())
            .title(title)
            .description(description)
            .datasource(SOURCE)
            .grid_pos(models.GridPos(h=height, w=width, x=self.x, y=self.y))
        )
        if unit:
            panel = panel.unit(unit)
        for index, (legend, expr) in enumerate(queries):
            target = prometheus.Dataquery().datasource(SOURCE).ref_id(chr(ord("A") + index))
            target = target.expr(self.with_selector(expr)).legend_format(legend)
            panel = panel.with_target(self.shape(target))
        self.x += width
        self.row_height = max(self.row_height, height)
        self.board = self.board.with_panel(panel)

    def graph(self, title, description, unit, queries, width=THIRD, stacked=False, limits=None):
        """queries: (legend, expr). limits: (warning, critical) lines."""
        panel = (
            timeseries.Panel()
            .line_width(1)
            .fill_opacity(25 if stacked else 8)
            .min(0)
            .legend(common.VizLegendOptions()
                    .display_mode(common_models.LegendDisplayMode.LIST)
                    .placement(common_models.LegendPlacement.BOTTOM)
                    .show_legend(True))
            .tooltip(common.VizTooltipOptions()
                     .mode(common_models.TooltipDisplayMode.MULTI)
                     .sort(common_models.SortOrder.DESCENDING))
        )
        if stacked:
            panel = panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
        if limits:
            panel = panel.thresholds(steps([(None, "green"), (limits[0], "orange"), (limits[1], "red")]))
            panel = panel.thresholds_style(
                common.GraphThresholdsStyleConfig().mode(common_models.GraphTresholdsStyleMode.DASHED))
        self.shape = lambda target: target.range()
        self.place(panel, title, description, unit, queries, width, 8)

    def number(self, title, description, unit, query, colors, legend="", text=False, width=SIXTH):
        """colors: [(from, color)], the first from None."""
        panel = (
            stat.Panel()
            .thresholds(steps(colors))
            .color_mode(common_models.BigValueColorMode.VALUE)
            .graph_mode(common_models.BigValueGraphMode.NONE if text else common_models.BigValueGraphMode.AREA)
            .text_mode(common_models.BigValueTextMode.NAME if text else common_models.BigValueTextMode.AUTO)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        )
        self.shape = lambda target: target.range()
        self.place(panel, title, description, unit, [(legend or title, query)], width, 4)

    def heat(self, title, description, query, width=THIRD):
        panel = (
            heatmap.Panel()
            .calculate(False)
            .y_axis(heatmap.YAxisConfig().unit("s"))
            .color(heatmap.HeatmapColorOptions().scheme("Oranges").steps(32))
        )
        self.shape = lambda target: target.range().format("heatmap")
        self.place(panel, title, description, "short", [("{{le}}", query)], width, 8)

    def ranking(self, title, description, unit, query, width=HALF):
        panel = table.Panel().no_value("none")
        self.shape = lambda target: target.instant().format("table")
        self.place(panel, title, description, unit, [("{{namespace}}/{{training_job}}", query)], width, 8)


def steps(colors):
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(
        [models.Threshold(value=value, color=color) for value, color in colors])


def rate(metric):
    return f"rate({metric}[$__rate_interval])"


def quantiles(histogram, by=""):
    """p50, p95, p99 of a histogram given as `name` (without _bucket), as (legend, expr)."""
    keep = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return [(f"p{round(q * 100)}{legend}",
             f"histogram_quantile({q}, sum by ({keep}) (rate({histogram}_bucket{{}}[$__rate_interval])))")
            for q in (0.5, 0.95, 0.99)]
