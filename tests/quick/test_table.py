"""stampede.report.figures.marks: what a figure shows, for everybody who cannot see it."""

import altair as alt

from stampede.report.figures.marks import MOST_ROWS, mark_tables
from stampede.report.tables import Table

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
    assert mark_tables(dots(MARKS)) == [Table("", ["variant", "time, ms"], [["one", "12.5"], ["two", "7.0"]], words=2)]


def test_a_layer_that_says_nothing_more_has_no_table() -> None:
    rules = chart(MARKS).mark_rule().encode(x=alt.X("low:Q", title="from"), y="variant:N")
    line = chart([{"x": 1}]).mark_rule().encode(x="x:Q")

    found = mark_tables(alt.layer(dots(MARKS), rules, dots(MARKS[:1]), line))

    assert [table.head for table in found] == [["variant", "time, ms"], ["variant", "from"]]


def test_of_many_marks_some_from_everywhere_have_rows_and_the_others_are_counted() -> None:
    [table] = mark_tables(dots([{"variant": f"v{n}", "value": n} for n in range(2 * MOST_ROWS + 5)]))

    left_out = 2 * MOST_ROWS + 5 - len(table.rows)
    assert table.note == f"{left_out} further marks, from everywhere in the figure, have no row here"
    assert [row[1] for row in table.rows[:3]] == ["0", "3", "6"]


def test_marks_that_look_alike_have_a_row_each() -> None:
    [table] = mark_tables(dots([{"variant": "one", "value": 12}] * 3))

    assert table.rows == [["one", "12"]] * 3


def test_what_only_the_shade_tells_apart_has_a_column() -> None:
    shades = dots([{"variant": "one", "value": 1, "what": "measured"}]).encode(opacity="what:N")

    [table] = mark_tables(shades)

    assert table.head == ["variant", "time, ms", "what"]


def test_panels_one_below_the_other_are_tables_with_their_titles() -> None:
    panels = alt.vconcat(dots(MARKS).properties(title="first"), dots(MARKS).properties(title="second"), title="both")

    assert [table.title for table in mark_tables(panels)] == ["first", "second"]


def test_what_is_computed_from_marks_is_not_in_the_table() -> None:
    median = chart(MARKS).mark_line().encode(x="variant:N", y="median(value):Q")

    assert [table.head for table in mark_tables(alt.layer(dots(MARKS), median))] == [["variant", "time, ms"]]


def test_two_layers_with_the_same_cells_in_other_rows_are_two_mark_tables() -> None:
    turned = [{"variant": "one", "value": 7.0}, {"variant": "two", "value": 12.5}]

    assert len(mark_tables(alt.layer(dots(MARKS), dots(turned)))) == 2
