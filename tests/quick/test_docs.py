"""The documents name what is there, and what they tell people to type works."""

import os
import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from pydantic import TypeAdapter
from typer.core import TyperGroup
from typer.main import get_command

from stampede import __version__
from stampede.cli import app
from stampede.cli.help import GROUPS
from stampede.evaluate.metrics import STATISTICS
from stampede.experiment.file import load_experiment, names, read_experiment
from stampede.paths import EXPERIMENTS, K6, ROOT
from stampede.servers import Server
from stampede.service.answers import AnsweredRoute, Answers, Followed, Record
from stampede.service.description import HEAD
from stampede.service.discovery import describe_folder
from stampede.service.layer import FOLDER
from tools.reference import renew

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
COMMANDS = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
EXPERIMENT_FILE = (DOCS / "reference" / "experiment-file.md").read_text(encoding="utf-8")
METRICS = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
GROUP = get_command(app)
assert isinstance(GROUP, TyperGroup)
LAB_COMMANDS = GROUP.commands
experiment_of = cache(load_experiment)
LESSON = ["Question", "Think first", "Run", "See", "Conclude", "What would change our mind", "Exercise"]


def rows(text: str) -> list[list[str]]:
    """Return the cells of each row of a document's tables; headings are rows, too, the lines below them are not."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[| -]+", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_first_screen_of_the_readme_has_the_question_the_command_its_output_and_results() -> None:
    """At most 40 lines, before the first heading of a section; the whole has at most 100."""
    first = README[: README.index("\n## ")]
    output = [line for line in first.splitlines() if line.startswith("    ")][1:]

    assert len(first.splitlines()) <= 40
    assert len(README.splitlines()) <= 100
    assert max(map(len, README.splitlines())) <= 120
    for part in ("?\n", "](docs/experiments/heavy-mix.svg)", "\n    make experiment NAME=heavy-mix\n",
                 "What this does not tell you", "](docs/README.md)"):  # fmt: skip
        assert part in first
    assert len([line for line in output if line.strip() != "…"]) == 11
    assert len(rows(first)) == 1 + 3


def test_every_make_target_is_among_the_commands() -> None:
    told = re.findall(r"^\| `?make ([a-z-]+)`? \| ", COMMANDS, flags=re.MULTILINE)

    assert {*TARGETS} - {"help"} <= {*told}


def test_what_is_generated_follows_from_the_code() -> None:
    """If it does not, this test writes it; keep what was written with your change."""
    assert renew() == []


def test_every_command_has_one_line_in_the_help() -> None:
    shown = [name for lines in GROUPS.values() for names in lines for name in names.split(", ")]

    assert sorted(shown) == sorted(LAB_COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_tells_people_to_type_is_there(document: Path) -> None:
    """Targets and options of make and stampede. The changelog also names what was dropped.

    A command may be indented, or stand between backquotes.
    """
    whole = document.read_text(encoding="utf-8")
    typed = " ".join(re.findall(r"`[^`]+`|^    .+$", whole, re.MULTILINE))
    given = re.findall(r"make [a-z]+((?: [A-Z_]+=[^\s`]+)+)", whole)
    known = set(re.findall(r"\$\(?(?:call (?:option|flag),)?([A-Z]+)", (ROOT / "Makefile").read_text()))
    unknown = {*re.findall(r"make ([a-z-]+)", typed)} - {*TARGETS}
    unknown |= {option for options in given for option in re.findall(r"([A-Z_]+)=", options)} - known
    for name, options in re.findall(r"\bstampede ([a-z-]+)((?: [^\s`]+)*? --[a-z0-9-]+[^`]*)", typed):
        if name in LAB_COMMANDS:
            of_command = {option for each in LAB_COMMANDS[name].params for option in each.opts}
            here = re.split(r" stampede | [|>;] ", options)[0]
            unknown |= {*re.findall(r"--[a-z0-9-]+", here)} - of_command - {"--help"}

    assert document.name == "CHANGELOG.md" or unknown == set()


def test_the_complete_file_of_contributing_is_an_experiment(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("This is a complete file:\n\n")[2]
    (tmp_path / "spare-worker.yaml").write_text(re.sub("^    ", "", text.partition("\n\nWrite")[0], flags=re.MULTILINE))

    assert [*read_experiment(tmp_path / "spare-worker.yaml").variants] == ["one-worker", "two-workers"]


def test_the_documents_beside_the_experiments_pages_have_at_most_26_800_words_that_somebody_wrote() -> None:
    """What is generated is not read from top to bottom. Say a thing once, and link to it."""
    assert sum(words_of(page) for page in DOCS.rglob("*.md") if page.parent != DOCS / "experiments") <= 26_800


def words_of(page: Path) -> int:
    """Return how many words of a document are not generated; signs of Markdown are no words."""
    own = re.sub(r"<!-- generated: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return len(re.findall(r"\S*\w\S*", own))


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_a_page_that_is_a_lesson_in_the_same_form(name: str) -> None:
    """It has all variants and claims, and at most 520 words beside its results.

    The answers to its question and to its exercise are folded away, and a prediction comes before the result.
    """
    page = (DOCS / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", page, flags=re.MULTILINE))
    folded = re.compile(r"^<details>\n<summary>.+</summary>\n\n(?:.*\n)+?\n</details>$", flags=re.MULTILINE)
    experiment = experiment_of(name)

    assert all(f"`{variant}`" in page for variant in experiment.variants)
    assert all(claim.says in page.replace("\\", "") for claim in experiment.claims)
    assert f"<!-- generated: results of {name} -->" in page
    assert words_of(DOCS / "experiments" / f"{name}.md") <= 520
    assert list(parts) == LESSON
    assert [heading for heading, part in parts.items() if folded.search(part)] == ["Think first", "Exercise"]
    assert page.count("<details>") == page.count("</details>") == 2
    assert f"\n    make experiment NAME={name}\n" in parts["Run"]
    assert f"\n    git restore experiments/{name}.yaml\n" in parts["Exercise"]


@pytest.mark.parametrize("name", names())
def test_every_exercise_changes_a_setting_that_is_in_the_experiment_s_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new value is allowed there, and the variants that the exercise measures exist."""
    page = (DOCS / "experiments" / f"{name}.md").read_text(encoding="utf-8")
    exercise = page[page.index("## Exercise") : page.rindex("<details>")]
    [(setting, old, new)] = re.findall(r"`(\w+): ([\d.]+)`.*?\sto\s`\1: ([\d.]+)`", exercise, flags=re.DOTALL)
    measured = {variant for some in re.findall(r"VARIANTS=(\S+)", exercise) for variant in some.split(",")}

    before = (EXPERIMENTS / f"{name}.yaml").read_text(encoding="utf-8")
    after = re.sub(rf"\b{setting}: {re.escape(old)}\b", f"{setting}: {new}", before)
    (tmp_path / f"{name}.yaml").write_text(after, encoding="utf-8")
    monkeypatch.setattr("stampede.experiment.file.EXPERIMENTS", tmp_path)

    assert after != before
    assert measured
    assert measured <= {*load_experiment(name).variants}


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_in_the_index_with_its_question_what_it_finds_and_a_verdict(name: str) -> None:
    """Its verdict is new if nobody published figures of it, and of nothing else; or nobody has measured it yet."""
    [(_, minutes, question, answer, verdict)] = [
        row for row in rows(INDEX) if row[0] == f"[{name}](experiments/{name}.md)"
    ]

    assert re.fullmatch(r"[1-9]\d*½?", minutes)
    assert question.endswith("?")
    assert answer in {claim.says for claim in experiment_of(name).claims}
    assert verdict == "not measured yet" or verdict.endswith("claims hold")
    assert verdict.startswith("new") == (not experiment_of(name).published and verdict != "not measured yet")


def test_every_page_is_in_the_index() -> None:
    assert [path for path in DOCS.glob("*/*.md") if f"]({path.relative_to(DOCS)})" not in INDEX] == []


def test_every_server_and_script_is_in_the_reference_of_experiment_files() -> None:
    servers = TypeAdapter(Server).json_schema()["discriminator"]["mapping"]

    assert [
        name for name in (*servers, *(path.name for path in K6.glob("*.js"))) if f"`{name}`" not in EXPERIMENT_FILE
    ] == []


def test_every_metric_and_its_statistics_are_in_the_method() -> None:
    told: dict[str, set[str]] = {}
    table = METRICS[METRICS.index("<!-- generated: metrics -->") :].partition("<!-- end -->")[0]
    for metric, statistics, *_ in rows(table)[1:]:
        of_row = told.setdefault(metric.strip("`") or next(reversed(told)), set())
        of_row |= set(TIMES) if statistics == "times" else set(re.findall(r"`(\w+)`", statistics))

    assert told == {metric: set(statistics) for metric, statistics in STATISTICS.items()}


TIMES = re.findall(r"p[\d.]*\d|min|avg|stdev|max", METRICS[METRICS.index("*Times* stands") :].split(". A metric")[0])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    """To a file, and to a heading in it where the link names one."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")) if "://" not in link]
    dead = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)

    assert dead == []


def test_the_glossary_is_short_explains_each_word_once_and_is_the_only_glossary() -> None:
    words = re.findall(r"^\| ([^|]+) \|", (DOCS / "learn" / "glossary.md").read_text(), re.MULTILINE)
    words = [word for word in words if word not in {"word", "---"}]

    assert len(words) <= 45
    assert len(set(words)) == len(words)
    assert [page.name for page in DOCUMENTS if "| word | meaning |" in page.read_text()] == ["glossary.md"]


def test_every_place_that_the_architecture_names_is_there_and_no_room_is_left_out() -> None:
    text = (DOCS / "develop" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./-])((?:stampede|analysis|servers|k6|experiments)/[\w./-]*\w)", text))
    rooms = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("stampede/*/__init__.py")}

    assert not {place for place in named if not (ROOT / place).exists()}
    assert rooms <= named


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_every_form_of_an_issue_can_be_read_and_asks_for_something(form: Path) -> None:
    asked = yaml.safe_load(form.read_text(encoding="utf-8"))

    assert {"name", "description", "body"} <= asked.keys()
    assert all(field["attributes"]["label"] for field in asked["body"])
    assert any(field.get("validations", {}).get("required") for field in asked["body"])


def test_the_citation_has_the_version_of_the_lab() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert (str(cited["version"]), cited["license"]) == (__version__, project["license"])
    assert cited["title"].startswith("Stampede")


def test_the_tree_in_the_readme_is_the_tree() -> None:
    """Every folder of the checkout but those that git ignores, and no other."""
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    there = [path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in ignored]
    section = README[README.index("## The tree") :]

    assert sorted(re.findall(r"^    ([\w-]+)/ ", section, flags=re.MULTILINE)) == sorted(there)


def test_make_alone_prints_help() -> None:
    by_hand = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make"], cwd=ROOT, env=by_hand, capture_output=True, text=True, check=True)

    assert [line.split()[0] for line in done.stdout.splitlines()][: len(TARGETS)] == TARGETS


def test_nothing_names_a_package_registry_or_an_absolute_path_of_somebody() -> None:
    locks = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "servers").rglob("requirements/*.txt")]

    assert len(locks) >= 5
    for lock in locks:
        assert "://" not in lock.read_text()
        assert "--hash=sha256:" in lock.read_text()


def test_every_test_is_in_a_folder_that_a_target_runs() -> None:
    """The folder is the marker: no test lies beside the folders, and none marks itself."""
    called = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "tools/tests.py"))
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    marks = "|".join(path.name for path in folders)

    assert {str(path) for path in folders} == {*re.findall(r"\btests/\w+", called)}
    for path in (ROOT / "tests").rglob("*.py"):
        assert not re.search(rf"pytest\.mark\.({marks})\b", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize(("page", "table"), [("security", "| property |"), ("reliability", "| fault |")])
def test_every_row_of_a_promise_names_its_test(page: str, table: str) -> None:
    text = (DOCS / "explain" / f"{page}.md").read_text(encoding="utf-8")
    promises = [row for part in text.split(table)[1:] for row in part.split("\n\n")[0].splitlines()[2:]]
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }

    assert promises
    for row in promises:
        named = re.findall(r"`(test_\w+)`", row.split(" | ")[-1])
        assert named, row
        assert set(named) <= written, row
    assert f"docs/explain/{page}.md" in README


def test_the_example_of_an_own_service_is_what_lab_init_writes(tmp_path: Path) -> None:
    """The application and the Procfile are taken from the page, as is the file that describes them."""
    page = (DOCS / "how-to" / "your-service.md").read_text(encoding="utf-8")
    source, procfile, file = re.findall(r"^```\w*\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)[:3]
    shop = tmp_path / "shop"
    shop.mkdir()
    (shop / "app.py").write_text(source)
    (shop / "Procfile").write_text(procfile)
    required = re.search(r"requirements\.txt, with `(\S+)` and `(\S+)`", page)
    (shop / "requirements.txt").write_text("\n".join(required.groups() if required else ()))

    said = Record(what="server", server="gunicorn", callable="app:app", folder=FOLDER, words=["gunicorn"],
                  settings={"workers": 4, "threads": 2, "worker_class": "gthread"},
                  differ=["workers", "threads"])  # fmt: skip
    routes = [AnsweredRoute(methods=["GET"], path=path) for path in ("/", "/report")]
    written = describe_folder(shop, answers=Answers(routes=routes, followed=Followed(records=[said]))).text

    assert written.split("\n", len(HEAD))[-1] == file.replace("/home/me/shop", str(shop))
