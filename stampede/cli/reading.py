"""The commands of ``stampede`` about finished runs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.errors import LabError, WrongUse
from stampede.finished import latest, reported, run_for, summary_of, tables_command, verification_of, verified
from stampede.paths import RESULTS
from stampede.records.folder import read_run
from stampede.run.options import Results, RunFolder
from stampede.terminal import out, print_json, report_path, say, talk, write, write_json
from stampede.typed import typed

if TYPE_CHECKING:
    from stampede.evaluate.statistics.compare import Side


def report(
    run: RunFolder = None,
    tables: Annotated[bool, typer.Option("--tables", help="Print every table instead of the answer.")] = False,
    table: Annotated[
        list[str] | None,
        typer.Option(show_default=False, help="Print the tables with this word in their title."),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the tables as Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Compute all results again from the raw points.")
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Print the answer of a run, or its tables, e.g. stampede report results/heavy-mix/latest --tables."""
    from stampede.diagnosis.section import read_section  # noqa: PLC0415
    from stampede.report.markdown import markdown  # noqa: PLC0415
    from stampede.report.screen import print_screen  # noqa: PLC0415
    from stampede.report.terminal import print_chosen_tables, print_tables  # noqa: PLC0415

    folder = run or latest(results)
    summary = reported(folder, results, recompute=recompute)
    record = read_run(folder)
    section = read_section(folder, summary)
    if as_markdown:
        write(markdown(record, summary))
    elif as_json:
        write_json(summary.model_dump_json(indent=2))
    elif table:
        print_chosen_tables(out, record, summary, table, section)
    elif tables:
        print_tables(out, record, summary, section)
        rows = Path(report_path(folder)).parent / "*/*/*/requests.parquet"
        say(f"\nThe requests, for DuckDB and pandas: {rows}")
    else:
        print_screen(out, record, summary, report_path(folder), tables_command(folder), section)
        if not (folder / "report.html").exists():
            say("There is no report.html: to draw it, pip install 'stampede-lab[lab]'")
        return
    say(f"\nReport: {report_path(folder)}")


def compare(
    a: Annotated[str, typer.Argument(show_default=False, help="A run, or RUN:VARIANT.")] = "",
    b: Annotated[str, typer.Argument(show_default=False, help="What to compare it with.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Compare all the same, and print the reasons against it as warnings.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Print every measured value, not only values that differ.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what differs as JSON.")] = False,
    results: Results = RESULTS,
) -> None:
    """Say how two runs or variants differ, e.g. stampede compare results/heavy-mix/latest:reuse-port …:least-conn."""
    from stampede.evaluate.statistics import compare as comparing  # noqa: PLC0415
    from stampede.report.tables.comparison import comparison_answer, comparison_tables  # noqa: PLC0415
    from stampede.report.terminal import terminal_table  # noqa: PLC0415

    if not a or not b:
        raise WrongUse("Give two runs, or two variants of runs.", hint=_COMPARE)
    first, other = (_side(text, results) for text in (a, b))
    reasons = [*comparing.obstacles(first, other)]
    if reasons and not (force and comparing.have_common(first, other)):
        problem = "They cannot be compared: " + ";\n".join(reasons) + "."
        raise WrongUse(problem, hint=f"{_COMPARE} --force" if comparing.have_common(first, other) else _COMPARE)
    for reason in (*reasons, *comparing.suspect_sides(first, other)):
        say(f"warning: {reason}")
    found, differs = comparing.changes(first, other), [*comparing.what_differs(first, other)]
    if as_json:
        settings = [{"setting": name, "a": of_a, "b": of_b} for name, of_a, of_b in differs]
        print_json({"a": a, "b": b, "settings": settings, "changes": [change._asdict() for change in found]})
        return
    out.print(comparison_answer(first, other, found), markup=False)
    if not differs:
        out.print("They were measured in the same way: nothing that was recorded differs.")
    out.print(f"\na: {a}\nb: {b}", markup=False, soft_wrap=True)
    for table in comparison_tables(found, differs, every=tables):
        out.print("", terminal_table(table), sep="\n")
    if not tables and any(change.verdict == "~" for change in found):
        out.print(f"\nEvery measured value: {typed('compare', a, b, '--tables')}", markup=False, soft_wrap=True)


_COMPARE = "stampede compare results/heavy-mix/latest:shared-socket results/heavy-mix/latest:least-conn"


def _side(text: str, results: Path) -> "Side":
    """Compute the results of a run that ``RUN`` or ``RUN:VARIANT`` names."""
    from stampede.evaluate.statistics.compare import Side, parse_side  # noqa: PLC0415
    from stampede.records.words import nearest_first  # noqa: PLC0415

    folder, variant = parse_side(text)
    summary = summary_of("compare", folder, results)
    run = read_run(folder)
    known = [variant.name for variant in run.variants]
    if variant is not None and variant not in known:
        raise WrongUse(f"{folder} has no variant {variant!r}.", hint=f"Its variants: {nearest_first(variant, known)}")
    return Side(text, run, summary, variant)


def verify(
    run: RunFolder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was compared as JSON.")] = False,
    results: Results = RESULTS,
) -> None:
    """Check that a run was not changed since it was measured, e.g. stampede verify results/heavy-mix/latest."""
    folder = run or latest(results)
    with run_for("verify"):
        if as_json:
            found = verification_of(folder)
            print_json({"run": str(folder), "is_as_measured": found.is_as_measured, **asdict(found)})
            if found.differences:
                raise typer.Exit(1)
            return
        for line in verified(folder, out):
            out.print(line, markup=False, soft_wrap=True)


def export(
    run: RunFolder = None,
    to: Annotated[
        Path | None,
        typer.Option(show_default=False, help="The file; default: <experiment>-<run time>.tar.gz"),
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Verify a run, or the runs of the lesson, and pack it into one file, e.g. stampede export results/lesson."""
    from stampede.export import archive_path, pack  # noqa: PLC0415
    from stampede.teach.lesson.handing_in import hand_in  # noqa: PLC0415
    from stampede.teach.lesson.notes import NOTES  # noqa: PLC0415

    folder = run or latest(results)
    with run_for("export"):
        if (folder / NOTES).is_file():
            out.print(str(hand_in(folder, to)), markup=False, soft_wrap=True)
            return
        target = archive_path(folder, to)
        for line in verified(folder, talk):
            say(line)
        pack([folder], target)
    out.print(str(target), markup=False, soft_wrap=True)


def class_(
    files: Annotated[
        list[Path] | None, typer.Argument(show_default=False, help="Archives of stampede export, or folders of runs.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(show_default=False, help="The page; default: class.html in RESULTS.")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Show what every laptop of a class measured on one page, and who differs, e.g. stampede class *.tar.gz."""
    from stampede.run.results import writing  # noqa: PLC0415
    from stampede.teach.classroom.page import write_class_page  # noqa: PLC0415
    from stampede.teach.classroom.strips import number_laptops  # noqa: PLC0415
    from stampede.teach.classroom.submissions import own_experiments, read_all  # noqa: PLC0415

    if not files:
        raise WrongUse("Give the archives that the class has handed in.", hint="stampede class a.tar.gz b.tar.gz")
    target = to or results / "class.html"
    if target.is_dir():
        raise WrongUse(f"{target} is a folder, but the page is a file.", hint="--to class.html")
    own = own_experiments()
    handed = read_all(files, set(own))
    problems = [problem for submission in handed for problem in submission.problems]
    for problem in problems:
        say(problem)
    used = [submission for submission in handed if submission.runs]
    if not used:
        raise LabError("No run can be shown.", hint="stampede export results/<experiment>/latest writes an archive.")
    laptops = number_laptops(used)
    with writing(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        chapters = write_class_page(target, laptops, own, left_out=len(problems))
    for chapter in chapters:
        say(f"{chapter.name}: {chapter.says}")
    if sum(bool(laptop.predictions) for laptop in laptops) == 1:
        say("The page has no predictions yet: it shows them when two laptops have handed in a lesson.")
    out.print(str(target), markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(1)
