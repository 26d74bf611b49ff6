"""analysis.show.figures.table: what a figure shows, for everybody who cannot see it."""

import altair as alt

from analysis.show.figures.table import MOST_ROWS, Table, tables

MARKS = [{"variant": "one", "value": 12.5, "low": 11.0, "offset": 0.3}, {"variant": "two", "value": 7.0, "low": 6.0}]


def chart(values: list[dict[str, object]]) -> alt.Chart:
    """Return a chart of these marks."""
    return alt.Chart(alt.InlineData(values=values))


def dots(values: list[dict[str, object]]) -> alt.Chart:
    """Return dots whose axes are called variant and time, ms."""
    drawn: alt.Chart = chart(values).mark_point().encode(
        x=alt.X("value:Q", title="time, ms"), y=alt.Y("variant:N", title=None), yOffset="offset:Q"
    )  # fmt: skip
    return drawn


def test_a_table_has_a_row_for_each_mark_and_a_column_for_each_axis() -> None:
    assert tables(dots(MARKS)) == [Table(["variant", "time, ms"], [["one", "12.5"], ["two", "7.0"]], 0)]


def test_a_layer_that_says_nothing_more_has_no_table() -> None:
    rules = chart(MARKS).mark_rule().encode(x=alt.X("low:Q", title="from"), x2="value:Q", y="variant:N")
    line = chart([{"x": 1}]).mark_rule().encode(x="x:Q")

    found = tables(alt.layer(dots(MARKS), rules, dots(MARKS[:1]), line))

    assert [table.head for table in found] == [["variant", "from", "value"], ["variant", "time, ms"]]


def test_parts_of_a_facet_are_named_in_a_column() -> None:
    [table] = tables(dots(MARKS).facet(row=alt.Row("variant:N", title="which")))

    assert table.head[-1] == "time, ms"
    assert [row[0] for row in table.rows] == ["one", "two"]


def test_marks_that_have_no_row_are_counted() -> None:
    [table] = tables(dots([{"variant": f"v{n}", "value": n} for n in range(MOST_ROWS + 5)]))

    assert (len(table.rows), table.left_out) == (MOST_ROWS, 5)
