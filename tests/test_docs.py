"""The documents name what is there, and what they tell people to type works."""

import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from lab.cli import app
from lab.experiment.file import load_experiment, names
from lab.paths import K6, ROOT
from lab.servers import Server

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
FACTORS = ("VARIANTS", "FULL", "DURATION", "TRIALS", "JOBS", "SEED", "STRICT", "RESULTS", "CPU", "MARKDOWN")


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_every_make_target_is_in_the_readme(target: str) -> None:
    assert f"make {target}" in README


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_in_a_document_exists(document: Path) -> None:
    named = re.findall(r"make ([a-z]+)", " ".join(re.findall(r"`[^`]+`|^    .+$", document.read_text(), re.MULTILINE)))

    assert set(named) <= set(TARGETS)


@pytest.mark.parametrize("command", [one.name or one.callback.__name__ for one in app.registered_commands])  # type: ignore[union-attr]
def test_every_command_of_lab_is_in_the_readme(command: str) -> None:
    line = README[README.index("targets is `.venv/bin/lab`") :].split("each has")[0]

    assert f"`{command}`" in line


@pytest.mark.parametrize("factor", FACTORS)
def test_every_factor_of_a_run_is_in_the_readme(factor: str) -> None:
    assert f"`{factor}=" in README


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_its_page_with_its_variants_and_claims(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    experiment = load_experiment(name)

    for heading in ("Question", "What to expect", "Result", "What would change our mind"):
        assert f"## {heading}" in page
    assert all(f"`{variant}`" in page for variant in experiment.variants)
    assert all(claim.says in page for claim in experiment.claims)


SERVERS = TypeAdapter(Server).json_schema()["discriminator"]["mapping"]


@pytest.mark.parametrize("name", [*names(), *SERVERS, *sorted(path.name for path in K6.glob("*.js"))])
def test_every_experiment_server_and_script_is_in_the_readme(name: str) -> None:
    assert f"`{name}`" in README or f"[{name}](docs/{name}.md)" in README


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_between_documents_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8"))

    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize(
    "folder",
    [
        "experiments",
        "servers",
        "mariadb",
        "nginx",
        "haproxy",
        "k6",
        "clients",
        "lab",
        "analysis",
        "tools",
        "docs",
        "tests",
    ],
)
def test_the_tree_in_the_readme_is_the_tree(folder: str) -> None:
    assert (ROOT / folder).is_dir()
    assert f"    {folder}/ " in README


def test_make_alone_prints_help() -> None:
    by_hand = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make"], cwd=ROOT, env=by_hand, capture_output=True, text=True, check=True)

    assert [line.split()[0] for line in done.stdout.splitlines()] == TARGETS


def test_nothing_names_a_package_registry_or_an_absolute_path_of_somebody() -> None:
    locks = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "servers").rglob("requirements/*.txt")]

    assert len(locks) >= 5
    for lock in locks:
        assert "://" not in lock.read_text()
        assert "--hash=sha256:" in lock.read_text()


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment and the commands of the README's section, and the way back."""
    section = README[README.index("## By hand") : README.index("The `LAB_` variables of")]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert len(commands) == 5
    environment = os.environ | {
        "LAB_PORT": "18080", "COMPOSE_PROJECT_NAME": "stampede-readme", "LAB_RESULTS": str(tmp_path),
    }  # fmt: skip
    yield environment, commands
    subprocess.run(["sh", "-c", commands[-1]], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.mark.containers
@pytest.mark.usefixtures("own_images")
def test_the_commands_by_hand_work(by_hand: tuple[dict[str, str], list[str]], tmp_path: Path) -> None:
    environment, commands = by_hand
    _, up, curl, load, _ = commands

    subprocess.run(["sh", "-c", up], cwd=ROOT, env=environment, check=True, capture_output=True)
    url = curl.split("'")[1].replace(":8080", ":18080")
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # loopback
                assert answer.status == 200
                assert b'"worker"' in answer.read()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    short = load.replace(" k6", " -T -e DURATION=2s -e HEAVY_DELAY_S=0.1 k6")
    subprocess.run(["sh", "-c", short], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert (tmp_path / "points.json.gz").stat().st_size > 0


@pytest.mark.containers
@pytest.mark.usefixtures("own_images")
def test_the_commands_by_hand_start_django_with_its_database(
    by_hand: tuple[dict[str, str], list[str]], tmp_path: Path
) -> None:
    """One shell runs them all, as somebody's would."""
    environment, _ = by_hand
    section = README[README.index("Django's guest book needs its database") : README.index("## How it works")]
    export, up, curl, load = (line.strip() for line in section.splitlines() if line.startswith("    "))
    short = load.replace(" k6", " -T -e DURATION=2s -e RATES_PER_S=5 -e STEP_LASTS_S=2 k6")
    patient = curl.replace("curl", "curl --silent --fail --retry 20 --retry-all-errors --retry-delay 1")
    script = f"set -e; {export}; {up}; {patient.replace(':8080', ':18080')}; {short}"

    done = subprocess.run(["sh", "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)

    assert '<form method="post">' in done.stdout
    assert (tmp_path / "points.json.gz").stat().st_size > 0


@pytest.mark.parametrize(("page", "table"), [("security", "| property |"), ("reliability", "| fault |")])
def test_every_row_of_a_promise_names_its_test(page: str, table: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    rows = text[text.index(table) :].split("\n\n")[0].splitlines()[2:]
    written = {
        name for path in (ROOT / "tests").glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }

    assert rows
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.split(" | ")[-1])
        assert named, row
        assert set(named) <= written, row
    assert f"docs/{page}.md" in README
