"""Row and column: what the query attends to and who attends to the key, all stages as bars."""

from mta_viz.analysis.cross_sections import CrossSection, key_column, query_row
from mta_viz.exporting.tables import section_csv
from mta_viz.plots.rows import section_bars, section_limits
from mta_viz.ui.cache import remember
from mta_viz.ui.clicks import on_position
from mta_viz.ui.drawn import Drawn, file_parts
from mta_viz.ui.widgets import caption_with_save, chart

WIDTH = 900


def draw(drawn: Drawn) -> None:
    """The query's row above the key's column."""
    _draw_section(drawn, row_of(drawn), "key", drawn.selected.key)
    _draw_section(drawn, column_of(drawn), "query", drawn.selected.query)


def row_of(drawn: Drawn) -> CrossSection:
    """The selected query over the keys it sees."""
    query = drawn.selected.query
    return remember(
        lambda: query_row(drawn.page.trace, *drawn.head_key[1:], query), "row", *drawn.head_key, query
    )


def column_of(drawn: Drawn) -> CrossSection:
    """The selected key over the queries that see it."""
    key = drawn.selected.key
    return remember(
        lambda: key_column(drawn.page.trace, *drawn.head_key[1:], key), "column", *drawn.head_key, key
    )


def _draw_section(drawn: Drawn, section: CrossSection, field: str, selected: int) -> None:
    first, numbering = drawn.page.first_token, drawn.page.numbering
    figure = remember(
        lambda: section_bars(
            section, drawn.tokens, limits=section_limits(section, first_token=first),
            numbering_from=numbering, selected=selected, spans=drawn.spans, width=WIDTH,
        ),
        "bars", section.along, *drawn.head_key, section.position, selected, first, numbering, drawn.spans,
    )  # fmt: skip
    name = f"bars.{drawn.page.key}.{section.along}.{section.position}"
    other = {"query" if field == "key" else "key": section.position}
    chart(figure, name, on_position(field, **other), alt="Bars over the tokens, one row a stage")
    caption_with_save(
        "Red above 0, blue below. Score stages share one limit, weight stages another. Click a bar to "
        f"select that {field}.{' Outlined: the named spans.' if drawn.spans else ''}",
        (*file_parts(drawn), section.along, section.position),
        figure,
        lambda: section_csv(section, drawn.tokens),
        f"bars.{section.along}",
    )
