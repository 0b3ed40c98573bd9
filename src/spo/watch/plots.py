"""Figures that look alike: quiet axes whose colours are the page's, and tools that do not take the page's scrolling."""

from collections.abc import Sequence

from bokeh.models import (
    BasicTickFormatter,
    BoxZoomTool,
    ColumnDataSource,
    DataRange1d,
    FixedTicker,
    Grid,
    HoverTool,
    InlineStyleSheet,
    LinearAxis,
    LinearScale,
    LogAxis,
    LogScale,
    NumeralTickFormatter,
    PanTool,
    PrintfTickFormatter,
    Range1d,
    ResetTool,
    SaveTool,
    UIElement,
    WheelZoomTool,
)
from bokeh.plotting import figure

HEIGHT = 240
GREY = "#8a94a0"
"""For what carries no name; it is seen on light and dark pages alike."""
FONT = "12px"


def make_figure(
    name: str,
    x_range: DataRange1d | Range1d | None = None,
    y_range: DataRange1d | Range1d | None = None,
    height: int = HEIGHT,
    tooltips: Sequence[tuple[str, str]] = (),
    dimensions: str = "width",
    **options,
) -> figure:
    """Make an empty figure as wide as its place."""
    tools = [PanTool(dimensions=dimensions), BoxZoomTool(dimensions=dimensions), WheelZoomTool(dimensions=dimensions)]
    plot = figure(
        name=name,
        height=height,
        sizing_mode="stretch_width",
        min_width=200,
        tools=[*tools, ResetTool(), SaveTool()],
        toolbar_location="above",
        toolbar_inner=True,
        x_range=x_range or DataRange1d(range_padding=0.02),
        y_range=y_range or DataRange1d(range_padding=0.08),
        min_border=4,
        **options,
    )
    plot.toolbar.logo, plot.toolbar.autohide = None, True
    plot.toolbar.stylesheets = [
        InlineStyleSheet(css=":host(.bk-inner) { background: var(--card); border-radius: 6px; }")
    ]
    plot.toolbar.active_drag, plot.toolbar.active_scroll = tools[1], None
    plot.xaxis.formatter = NumeralTickFormatter(format="0.[00]a")
    plot.outline_line_color = None
    plot.axis.minor_tick_line_color = None
    plot.axis.major_label_text_font_size = plot.axis.axis_label_text_font_size = FONT
    plot.axis.axis_label_text_font_style = "normal"
    if tooltips:
        add_hover(plot, tooltips)
    return plot


def add_hover(plot: figure, tooltips: Sequence[tuple[str, str]], **options) -> HoverTool:
    """Show the values at the pointer's place along the run; what a source holds is text there, and no markup."""
    hover = HoverTool(tooltips=list(tooltips), **{"mode": "vline", "line_policy": "nearest"} | options)
    plot.add_tools(hover)
    return hover


def hide_figure(plot: figure) -> None:
    """Take a finished figure, and the card around it, from the page until `show_figure`: it has nothing to show yet.

    An axis that follows its data has no ends without any, and Bokeh complains of that; a point that is not drawn lends
    it some until then.
    """
    point = {"x": [0], "y": [0]}
    plot.scatter("x", "y", source=ColumnDataSource(point), visible=False)
    plot.css_classes = ["empty"]


def show_figure(plot: figure, is_shown: bool) -> None:
    """Show a figure that was hidden, once there is something in it, or hide it again."""
    if show_part(plot, is_shown):
        point = [] if is_shown else [0]
        plot.renderers[-1].data_source.data = {"x": point, "y": point}


def show_part(part: UIElement, is_shown: bool) -> bool:
    """Show a part of the page and the card around it, or take both from the page; whether that is a change."""
    classes = [] if is_shown else ["empty"]
    is_change = part.css_classes != classes
    if is_change:
        part.css_classes = classes
    return is_change


def set_log_scale(plot: figure, is_log: bool, ticks: Sequence[float] = ()) -> None:
    """Draw the upright axis by powers, marked at the given numbers if there are any, or by numbers."""
    if isinstance(plot.y_scale, LogScale) != is_log:
        _replace_axis(plot, is_log)
    axis = plot.yaxis[0]
    if is_log and ticks and getattr(axis.ticker, "ticks", None) != list(ticks):
        axis.update(ticker=FixedTicker(ticks=list(ticks)), formatter=PrintfTickFormatter(format="%g"))


def _replace_axis(plot: figure, is_log: bool) -> None:
    plot.y_scale = LogScale() if is_log else LinearScale()
    axis = LogAxis() if is_log else LinearAxis(formatter=BasicTickFormatter())
    style = {
        "major_label_text_font_size": FONT,
        "axis_label_text_font_size": FONT,
        "axis_label_text_font_style": "normal",
    }
    axis.update(axis_label=plot.yaxis[0].axis_label, minor_tick_line_color=None, **style)
    plot.left = [axis]
    plot.center = [part for part in plot.center if part not in plot.ygrid] + [Grid(dimension=1, axis=axis)]
