"""Write the table of metrics into docs/method.md: python -m analysis.metrics, in the lab's folder."""

from pathlib import Path

from analysis.metrics import METRICS

METHOD = Path("docs/method.md")
BEGIN, END = "<!-- metrics -->\n", "<!-- /metrics -->"


def reference() -> str:
    """Return all metrics as a Markdown table, with a row for each statistic or group of statistics."""
    lines = [
        "| metric | statistics | unit | of which requests | how it is counted |",
        "| --- | --- | --- | --- | --- |",
    ]
    for metric in METRICS.values():
        of = "all" if metric.of_all else "each class"
        name = f"`{metric.name}` "
        for how, stats in metric.explained():
            units = [metric.units[stat] for stat in stats]
            named = "times" if metric.is_of_times else ", ".join(f"`{stat}`" for stat in stats)
            counted = units[0] if len({*units}) == 1 else ", ".join(units)
            lines.append(f"| {name}| {named} | {counted} | {of} | {how} |")
            name = ""
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    before, _, rest = METHOD.read_text(encoding="utf-8").partition(BEGIN)
    METHOD.write_text(before + BEGIN + reference() + END + rest.partition(END)[2], encoding="utf-8")
