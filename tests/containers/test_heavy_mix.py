"""The whole way on real containers: heavy-mix for a few seconds, from the file to the report."""

import gzip
import json
import os
import platform
import re
import subprocess
from pathlib import Path

import duckdb
import pytest
import yaml
from playwright.sync_api import sync_playwright

from stampede.experiment.file import load_experiment
from stampede.records.checksums import MANIFEST, read_manifest, sha256
from stampede.records.folder import read_run, read_trial, trial_folders
from tests.archives import telling
from tests.conftest import PATIENCE_S, Lab, copy_lab, lab_objects, on_host
from tools.browser import chromium

Measured = tuple[Lab, "subprocess.CompletedProcess[str]"]
VARIANTS = sorted(load_experiment("heavy-mix").variants)


OF_THE_MACHINE = "other machines ", "the load generator waited for a ", "something waited ", "the machine was "
"""How doubts begin that somebody else causes who uses the machine meanwhile."""


HOST, USER = "dolores-thinkpad-7", "dolores"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All eight variants, side by side, with shorter requests, by somebody whose name is nowhere else."""
    folder = tmp_path_factory.mktemp("measured")
    home = folder / "home-of-dolores"
    home.mkdir()
    cache, docker = (Path.home() / name for name in (".cache", ".docker"))
    environment = {
        "HOME": str(home), "USER": USER, "LOGNAME": USER,
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(cache)),
        "DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG", str(docker)),
    }  # fmt: skip
    root = copy_lab(folder).root
    lab = Lab(root, folder / "results", environment, on_host(HOST))
    lab.edit("experiments/heavy-mix.yaml", "most: 1}", "most: 0.6}")
    lab.edit("experiments/heavy-mix.yaml", "takes_s: 10}", "takes_s: 3}")
    lab.start_loads_at_once()
    lab.predict_roughly()
    return lab, lab.run_for(2 * PATIENCE_S, "run", "heavy-mix", "--duration", "8s")


def requests(folder: Path) -> duckdb.DuckDBPyRelation:
    return duckdb.read_parquet(f"{folder}/*/*/*/requests.parquet")


def values(relation: duckdb.DuckDBPyRelation, query: str) -> list[tuple[object, ...]]:
    found = relation.query("requests", query)
    assert found is not None
    return found.fetchall()


def test_it_ends_well_and_leaves_nothing_running(measured: Measured) -> None:
    lab, done = measured

    assert done.returncode == 0, done.stderr
    assert lab_objects() == []
    assert lab.leftovers() == []
    assert (lab.results / "heavy-mix" / "latest").readlink() == Path(lab.latest().name)


def test_no_variant_gives_reason_to_doubt(measured: Measured) -> None:
    summary = json.loads((measured[0].latest() / "summary.json").read_text())

    assert [trial["variant"] for trial in summary["trials"]] == [*VARIANTS]
    for trial in summary["trials"]:
        assert trial["verdict"] in ("valid", "suspect")
        assert [one for one in trial["reasons"] if not one.startswith(OF_THE_MACHINE)] == []


def test_no_request_is_missing_from_the_rows(measured: Measured) -> None:
    """k6's own counter of HTTP requests and our rows agree, trial by trial."""
    for folder in trial_folders(measured[0].latest()):
        with gzip.open(folder / "points.json.gz", "rt") as points:
            counted = sum('"metric":"http_reqs","type":"Point"' in line for line in points)
        [(rows, failed)] = values(
            duckdb.read_parquet(f"{folder}/requests.parquet"), "SELECT count(*), count(error) FROM requests"
        )
        assert (rows, failed) == (counted, 0)
        assert counted >= 7, "each of the seven users sends at least one request"


def test_each_variant_is_served_as_its_file_says(measured: Measured) -> None:
    """Release, processes, threads and containers, as the answers themselves show them."""
    rows = requests(measured[0].latest())
    seen = {
        variant: (server, workers, hosts)
        for variant, server, workers, hosts in values(
            rows,
            """SELECT variant, any_value(server), count(DISTINCT worker), count(DISTINCT split_part(worker, ':', 1))
               FROM requests GROUP BY variant""",
        )
    }

    assert {name: seen[name][0] for name in VARIANTS} == {
        name: "gunicorn/23.0.0" if name == "shared-socket-23" else "gunicorn/27.0.1" for name in VARIANTS
    }
    assert seen["one-process"][1:] == (1, 1)
    assert seen["least-conn"][1:] == (4, 4)
    four_processes = [seen[name][1:] for name in VARIANTS if name not in ("one-process", "least-conn")]
    assert set(four_processes) <= {(2, 1), (3, 1), (4, 1)}  # in seconds, an unlucky one may serve nothing
    assert (4, 1) in four_processes
    [(threads,)] = values(rows, "SELECT count(DISTINCT thread) FROM requests WHERE variant = 'one-process'")
    assert threads in (7, 8)  # the pool starts a thread when none is idle, and there are seven clients


def test_the_overhead_is_what_the_request_lost(measured: Measured) -> None:
    """Sleep and overhead add up to k6's time, and the server's own clock agrees with both."""
    rows = requests(measured[0].latest())

    assert values(
        rows, "SELECT count(*) FROM requests WHERE abs(service_time_ms + overhead_ms - duration_ms) > 1e-6"
    ) == [(0,)]
    assert values(rows, "SELECT count(*) FROM requests WHERE (ended - began) * 1000 < service_time_ms - 1") == [(0,)]
    assert values(rows, "SELECT count(*) FROM requests WHERE began < epoch(sent) - 0.001") == [(0,)]


def test_the_phenomenon_shows(measured: Measured) -> None:
    """No absolute time: the shared socket's tail is many times the single process's, in the same run."""
    summary = json.loads((measured[0].latest() / "summary.json").read_text())
    p90 = {
        row["variant"]: row["measured"]
        for row in summary["rows"]
        if (row["request_class"], row["metric"], row["stat"]) == ("light", "overhead", "p90")
    }

    assert p90["shared-socket-23"] > 10 * p90["one-process"]


def test_the_records_say_what_was_measured(measured: Measured) -> None:
    run = read_run(measured[0].latest())
    trials = [read_trial(folder) for folder in trial_folders(measured[0].latest())]

    assert (run.outcome, run.jobs, run.trials) == ("completed", 8, 1)
    assert sorted(name for name, _, _ in run.order) == VARIANTS
    assert run.command == "stampede run heavy-mix --duration 8s --trials 1"
    assert {image.name for image in run.images} == {
        "debian:trixie-slim", "grafana/k6:2.1.0", "stampede/nginx:trixie", "stampede/gunicorn:23.0.0",
        "stampede/gunicorn:27.0.1",
    }  # fmt: skip
    assert all(image.id.startswith("sha256:") for image in run.images)
    assert all("libc6" in image.packages or "musl" in image.packages for image in run.images)
    programs = {image.name: image.programs for image in run.images}
    assert programs["grafana/k6:2.1.0"] == {"k6": "2.1.0"}
    assert programs["stampede/nginx:trixie"]["nginx"].startswith("1.26.")
    assert programs["stampede/gunicorn:27.0.1"]["gunicorn"] == "27.0.1"
    assert programs["stampede/gunicorn:27.0.1"]["python3"].startswith("3.13.")
    assert {trial.outcome for trial in trials} == {"measured"}
    assert {trial.side_by_side for trial in trials} == {8}
    assert all(trial.seconds.load and trial.seconds.load >= 8 for trial in trials)


def test_a_trial_keeps_its_evidence_with_the_callers_ownership(
    measured: Measured,
) -> None:
    folder = measured[0].latest() / "least-conn" / "heavy-mix" / "1"

    assert {path.name for path in folder.iterdir()} == {
        "compose.yml", "factors.env", "k6-1.log", "k6-processor.txt", "load.env", "points.json.gz", "requests.parquet",
        "start.env", "trial.json", "nginx-1.log", "nginx-1.before.txt", "nginx-1.after.txt",
        *(f"gunicorn-{n}.{what}" for n in (1, 2, 3, 4) for what in ("log", "before.txt", "after.txt")),
    }  # fmt: skip
    assert {os.getuid()} == {path.stat().st_uid for path in folder.iterdir()}
    composed = yaml.safe_load((folder / "compose.yml").read_text())
    assert composed["services"]["gunicorn"]["scale"] == 4
    assert composed["services"]["nginx"]["environment"]["LAB_BALANCE"] == "least_conn;"


def test_an_export_does_not_tell_where_the_run_was_made(measured: Measured, tmp_path: Path) -> None:
    """Every file of the archive is searched, whatever is compressed, and nothing had to be cleaned for it."""
    lab, archive = measured[0], tmp_path / "mine.tar.gz"
    host = HOST if lab.before else f"{platform.node()}-{os.getuid()}"

    done = lab.run("export", str(lab.latest()), "--to", str(archive))

    assert (done.returncode, done.stdout) == (0, f"{archive}\n")
    assert done.stderr == (
        f"{len(read_manifest(lab.latest()))} measured files are unchanged; "
        "predicted.json, summary.json, report.html and requests.parquet follow from these files.\n"
        f"manifest.sha256: {sha256(lab.latest() / MANIFEST)}\n"
    )
    assert telling(archive, host, USER, str(lab.root), str(lab.results), lab.environment["HOME"]) == []


def test_a_trial_keeps_the_settings_and_limits_that_were_in_force(measured: Measured) -> None:
    folder = measured[0].latest() / "least-conn" / "heavy-mix" / "1"
    server, nginx = ((folder / f"{name}-1.before.txt").read_text() for name in ("gunicorn", "nginx"))

    assert json.loads(server.split("==> settings <==\n")[1])["threads"] == "2"
    assert "least_conn;" in nginx.split("==> settings <==\n")[1]
    assert "CapEff:\t0000000000000000" in server
    assert "Max open files            16384                16384" in server
    assert "==> /proc/sys/net/core/somaxconn <==\n4096\n" in server
    assert "268435456" in server  # the memory limit, in either kind of control group


def test_the_answer_fits_a_terminal_of_24_lines_and_80_columns(measured: Measured) -> None:
    out = measured[1].stdout

    assert max(len(line) for line in out.splitlines() if str(measured[0].results) not in line) <= 80
    assert len(out.splitlines()) <= 24
    assert out.index("Why does a light request") < out.index("light requests ") < out.index("Report: ")


def test_the_terminal_shows_plain_lines_when_it_is_none(
    measured: Measured,
) -> None:
    said = measured[1].stderr.splitlines()

    assert re.fullmatch(r"heavy-mix: 8 trials in 1 batch, about \d+ s\.", said[0])
    assert "\x1b" not in measured[1].stderr
    assert len([line for line in said if "(heavy-mix, trial 1): measured, " in line]) == 8


def test_the_report_opens_offline_and_shows_everything(measured: Measured, tmp_path: Path) -> None:
    """In a real browser: no request to anything, no script error, every section and picture there."""
    asked: list[str] = []
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        report = measured[0].latest() / "report.html"
        page.goto(report.as_uri())
        headings = page.locator("h2").all_inner_texts()
        figures = page.locator("figure svg")
        drawn = [figures.nth(index).bounding_box() for index in range(figures.count())]
        verdicts = page.locator("#verdicts + .wide tr").count() - 1
        page.get_by_role("button", name="show the slowest light request").click()
        finding = page.locator(".microscope .finding").inner_text()
        text = page.inner_text("body")
        page.screenshot(path=tmp_path / "report.png", full_page=True)
        browser.close()

    assert asked == [report.as_uri()]
    assert complaints == []
    assert "waited while another worker had a free thread" in headings[0]
    assert headings[1:] == [
        "Verdicts", "Pictures", "Can this be believed?", "Published and measured", "Variants and loads",
        "Environment", "Method", "Run it again",
    ]  # fmt: skip
    assert "while another worker had a free thread" in finding
    assert len(drawn) == 3  # the published figures, and two of what was measured
    assert all(box and box["width"] > 500 and box["height"] > 100 for box in drawn)
    assert verdicts == len(load_experiment("heavy-mix").claims)
    assert "stampede run heavy-mix --duration 8s --trials 1" in text
    assert all(name in text for name in VARIANTS)
    assert report.stat().st_size < 2_000_000
