"""stampede.docker.redaction and stampede.export: no record and no archive tells where a run was made."""

import json
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.docker import leftovers, redaction
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import Progress
from stampede.docker.redaction import LOCAL, local_words, redact, redact_composed
from stampede.errors import LabError
from stampede.experiment.file import load_experiment
from stampede.paths import COMPOSE_FILE
from stampede.pipeline import derive
from stampede.plan import Plan, lay_out
from stampede.records.checksums import DERIVED_FROM, MANIFEST, read_manifest, seal, sha256
from stampede.records.folder import read_run
from stampede.records.run import TrialRecord
from stampede.run import machine_lock
from stampede.run import run as running
from stampede.run.options import MeasureOptions, RunRequest
from stampede.run.trial import batch
from tests.archives import telling, unpack
from tests.conftest import Lab, on_host
from tests.synthetic import Request, make_run, make_trial

HUNDRED = [Request(overhead_ms=float(n)) for n in range(1, 101)]
HOST, USER = "dolores-thinkpad-7", "dolores"
CHECKOUT = "/opt/sources-of-dolores/stampede"
RESULTS = "/srv/data-of-dolores/results"
CA_BUNDLE = "/home/dolores/company/ca.pem"
PLACES = (HOST, USER, CHECKOUT, RESULTS, "/home/")
FACTORS = """\
LAB_WORKERS='4'
LAB_OWNER='{host}-4711'
LAB_SCRIPT='heavy-mix.js'
LAB_LOAD_SETTINGS='{part}/load.env'
LAB_RESULTS='{part}'
LAB_USER='4711:4712'
LAB_CA_BUNDLE='{ca_bundle}'
LAB_CLIENT='silent.py'
LAB_CLIENT_SETTINGS='{part}/client.env'
"""
COMPOSED = """\
name: stampede-made-up-one-mix-1
networks:
  lab:
    internal: true
    labels:
      stampede.owner: {owner}
secrets:
  ca_bundle:
    file: {ca_bundle}
services:
  gunicorn:
    build:
      context: {checkout}
      dockerfile: servers/Dockerfile
      secrets:
      - source: ca_bundle
    environment:
      LAB_WORKERS: '4'
    labels:
      stampede.owner: {owner}
    mem_limit: '1073741824'
  k6:
    command:
    - ''
    - /k6/heavy-mix.js
    entrypoint:
    - sh
    - /k6/run
    labels:
      stampede.owner: {owner}
    user: {user}
    volumes:
    - type: bind
      source: {k6}
      target: /k6
      read_only: true
    - type: bind
      source: {part}
      target: /results
  client:
    user: {user}
    volumes:
    - type: bind
      source: {clients}
      target: /clients
      read_only: true
    - type: bind
      source: {part}
      target: /results
x-lab:
  cap_drop:
  - ALL
  labels:
    stampede.owner: {owner}
"""
"""What Compose made of a trial's factors, but for what tells nothing."""


def old_records(variant: str) -> dict[str, str]:
    """Return the records of a trial as the lab wrote them when they still told where it was made."""
    part = f"{RESULTS}/made-up/20260102T030405Z/{variant}/mix/.1.part"
    return {
        "factors.env": FACTORS.format(host=HOST, part=part, ca_bundle=CA_BUNDLE),
        "compose.yml": COMPOSED.format(
            owner=f"{HOST}-4711", part=part, ca_bundle=CA_BUNDLE, checkout=CHECKOUT, user="4711:4712",
            k6=f"{CHECKOUT}/k6", clients=f"{CHECKOUT}/clients",
        ),
    }  # fmt: skip


CLEAN = {
    "factors.env": "LAB_WORKERS='4'\nLAB_SCRIPT='heavy-mix.js'\nLAB_CLIENT='silent.py'\n",
    "compose.yml": COMPOSED.format(
        owner="${LAB_OWNER:-by-hand}", part="${LAB_RESULTS:-./results/by-hand}",
        ca_bundle="${LAB_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}", checkout=".", user="${LAB_USER:-1000:1000}",
        k6="./k6", clients="./clients",
    ),
}  # fmt: skip


@pytest.fixture
def old_run(lab: Lab) -> Path:
    """A run that was made by an older lab elsewhere: of two trials one failed, and so did the run."""
    failed = (
        'the servers did not become healthy: invalid mount config for type "bind": bind source path does not exist: '
        f"{CHECKOUT}/k6, is {HOST} up?"
    )
    run = make_run(
        lab.results / "made-up" / "20260102T030405Z", {"one": HUNDRED, "two": HUNDRED},
        outcome="failed", reason=f"[Errno 28] No space left on device: '{RESULTS}/made-up/20260102T030405Z'",
        order=[["one", "mix", "1"], ["two", "mix", "1"], ["one", "mix", "2"]],
    )  # fmt: skip
    make_trial(run, "two", 1, HUNDRED, outcome="failed", reason=failed)
    for variant in ("one", "two"):
        for name, text in old_records(variant).items():
            (run / variant / "mix" / "1" / name).write_text(text)
        (run / variant / "mix" / "1" / "k6-processor.txt").write_text("1700000000 0\n")
    seal(run)
    derive(run)
    return run


def content(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("undrawn")
def test_an_archive_of_an_older_run_does_not_tell_where_it_was_made(lab: Lab, old_run: Path, tmp_path: Path) -> None:
    """All of its files are searched, whatever is compressed. What was measured is in it to the byte."""
    before, archive = content(old_run), tmp_path / "mine.tar.gz"
    assert [name for name, text in before.items() if HOST.encode() in text] != []

    done = lab.call("export", str(old_run), "--to", str(archive))

    copy = unpack(archive, tmp_path / "elsewhere")
    assert (done.returncode, done.stdout) == (0, f"{archive}\n")
    assert done.stderr == (
        "19 measured files are unchanged; predicted.json, summary.json, report.html and requests.parquet "
        "follow from these files.\n"
        f"manifest.sha256: {sha256(old_run / MANIFEST)}\n"
        "Paths, host name and user number were removed from 6 records in the archive. The run was not changed.\n"
        f"manifest.sha256 of the archive: {sha256(copy / MANIFEST)} (the hash above belongs to the run)\n"
    )
    assert telling(archive, *PLACES) == []
    assert content(old_run) == before
    cleaned = {"run.json", "two/mix/1/trial.json"} | {f"{one}/mix/1/{name}" for one in ("one", "two") for name in CLEAN}
    after = content(copy)
    assert {name for name in before if after[name] != before[name]} == {
        *cleaned, DERIVED_FROM, MANIFEST, "summary.json", "report.html",
    }  # fmt: skip
    assert {name for name, digits in read_manifest(copy).items() if digits != read_manifest(old_run)[name]} == cleaned
    for variant in ("one", "two"):
        assert {name: (copy / variant / "mix" / "1" / name).read_text() for name in CLEAN} == CLEAN


@pytest.mark.usefixtures("undrawn")
def test_what_an_archive_of_an_older_run_says_still_follows_from_its_records(
    lab: Lab, old_run: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "mine.tar.gz"
    assert lab.call("export", str(old_run), "--to", str(archive)).returncode == 0
    copy = unpack(archive, tmp_path / "elsewhere")

    done = lab.call("verify", str(copy))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "19 measured files are unchanged; predicted.json, summary.json, report.html and requests.parquet "
        "follow from these files.\n"
        f"manifest.sha256: {sha256(copy / MANIFEST)}\n"
    )
    reasons = {
        (one["variant"], one["trial"]): one["reasons"]
        for one in json.loads((copy / "summary.json").read_text())["trials"]
    }
    assert reasons["two", 1][0] == (
        'failed: the servers did not become healthy: invalid mount config for type "bind": bind source path does not '
        "exist: $CHECKOUT/k6, is $HOST up?"
    )
    assert reasons["one", 2] == [
        "not measured: the run failed before ([Errno 28] No space left on device: '$RESULTS/made-up/20260102T030405Z')"
    ]
    assert "bind source path does not exist: $CHECKOUT/k6" in (copy / "report.html").read_text()


def test_an_archive_of_an_older_run_has_the_same_bytes_wherever_it_is_packed(
    lab: Lab, old_run: Path, tmp_path: Path
) -> None:
    """Also when what was packed is packed again, and then there is nothing to say of it."""
    first, second, third = (tmp_path / f"{name}.tar.gz" for name in ("first", "second", "third"))
    assert lab.call("export", str(old_run), "--to", str(first)).returncode == 0
    lab.environment = {"HOME": str(tmp_path), "LOGNAME": "somebody", "TMPDIR": str(tmp_path)}
    lab.before = on_host("another-machine")
    moved = tmp_path / "moved" / old_run.name
    shutil.copytree(old_run, moved)
    assert lab.run("export", str(moved), "--to", str(second)).returncode == 0
    copy = unpack(first, tmp_path / "elsewhere")
    lab.before = []

    done = lab.call("export", str(copy), "--to", str(third))

    assert "In the archive" not in done.stderr
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()


def test_an_archive_does_not_tell_who_packs_it_either(lab: Lab, tmp_path: Path) -> None:
    """A run without a trial has no record that would tell whose paths are in its reason."""
    archive, home = tmp_path / "mine.tar.gz", tmp_path / "home-of-dolores"
    home.mkdir()
    lab.environment = {"HOME": str(home), "LOGNAME": USER}
    lab.before = on_host(HOST)
    host = HOST if lab.before else platform.node()
    reason = f"{lab.results}, {lab.root}/k6, {home}/.docker, /mnt/dolores/x and tcp://{host}:2375 are gone."
    run = make_run(lab.results / "made-up" / "20260102T030405Z", {"one": HUNDRED}, outcome="failed", reason=reason)
    shutil.rmtree(run / "one")
    seal(run)
    derive(run)

    done = lab.run("export", str(run), "--to", str(archive))

    assert "\nPaths, host name and user number were removed from 1 record in the archive. " in done.stderr
    assert telling(archive, str(lab.results), str(lab.root), str(home), USER, f"//{host}") == []
    copy = unpack(archive, tmp_path / "elsewhere")
    assert json.loads((copy / "run.json").read_text())["reason"] == (
        "$RESULTS, $CHECKOUT/k6, $HOME/.docker, /mnt/$USER/x and tcp://$HOST:2375 are gone."
    )


@pytest.fixture
def dolores(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return what would tell that Dolores made a run on her machine."""
    monkeypatch.setattr(platform, "node", lambda: f"{HOST}.example.org")
    monkeypatch.setattr(redaction, "ROOT", Path(CHECKOUT))
    monkeypatch.setattr(redaction, "ca_bundle", lambda: "/opt/company/ca.pem")
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/tmp")
    monkeypatch.setenv("HOME", "/data/homes/dolly")
    monkeypatch.setenv("LOGNAME", USER)
    return local_words(Path(f"{CHECKOUT}/results"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"There is no room left for results in {CHECKOUT}/results.", "There is no room left for results in $RESULTS."),
        (f"open {CHECKOUT}/results/.1.part/load.env: gone", "open $RESULTS/.1.part/load.env: gone"),
        (f"'{CHECKOUT}/k6' and {CHECKOUT}-2", f"'$CHECKOUT/k6' and {CHECKOUT}-2"),
        ("unix:///data/homes/dolly/.docker/run/docker.sock", "unix://$HOME/.docker/run/docker.sock"),
        ("/home/bob.b/x, /Users/bob/x, /var/home/bob and /root/x", "$HOME/x, $HOME/x, $HOME and $HOME/x"),
        ("unix:///run/user/1000/docker.sock", "unix:///run/user/$UID/docker.sock"),
        ("There is no room left in /scratch/tmp.", "There is no room left in $TMPDIR."),
        ("open /opt/company/ca.pem", "open $CA_BUNDLE"),
        ("/media/dolores/stick", "/media/$USER/stick"),
        (f"tcp://{HOST}:2375, {HOST}.example.org and {HOST}-1000", "tcp://$HOST:2375, $HOST and $OWNER"),
        ("k6 ended with exit code 107: /k6/run, /tmp/workers, /results/points.json.gz and /etc/ssl",) * 2,
        ("the servers did not become healthy: http://127.0.0.1:8000/-/ready, /srv/mariadb.cnf",) * 2,
        ("/opt/sources/rooted, /rooted and /mnt/data/homes/dolly",) * 2,
    ],
)
def test_a_reason_has_words_for_what_tells_where_a_run_is_made(dolores: dict[str, str], text: str, told: str) -> None:
    assert redact(text, dolores) == told
    assert redact(told, dolores) == told


def test_a_host_whose_name_is_any_word_is_replaced_in_addresses_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the reason of a trial on a machine called nginx would say that this machine ended during the load."""
    monkeypatch.setattr(platform, "node", lambda: "nginx")
    text = "nginx ended during the load; tcp://nginx:2375, root@nginx and nginx:22 of nginx-1000 do not answer"

    assert redact(text, local_words(Path("/nowhere"))) == (
        "nginx ended during the load; tcp://$HOST:2375, root@$HOST and $HOST:22 of $OWNER do not answer"
    )


def test_a_run_that_fails_says_where_on_the_terminal_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error that the user sees has the true path, run.json and what is derived from it have a word."""
    results = tmp_path / "data-of-dolores" / "results"
    problem = f"There is no room left for results in {results}."

    def measure(_plan: Plan, _folder: Path, _progress: Progress, _engines: Engines) -> Iterator[list[TrialRecord]]:
        yield []
        raise LabError(problem)

    record = read_run(make_run(tmp_path / "record", {"one": HUNDRED}, outcome="running", ended=None))
    monkeypatch.setattr(batch, "measure_plan", measure)
    monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
    monkeypatch.setattr(running, "build_images", lambda *_: None)
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(running, "record_of", lambda *_, **__: record)
    experiment = load_experiment("heavy-mix")

    request = RunRequest("made-up", experiment, MeasureOptions(), results, "")
    with pytest.raises(LabError) as caught:
        running.run_plan(request, lay_out(experiment), lambda _: None, lambda *_: None)

    assert caught.value.message == problem
    [folder] = {path.resolve() for path in (results / "made-up").iterdir()}
    assert read_run(folder).reason == "There is no room left for results in $RESULTS."
    assert [name for name, text in content(folder).items() if b"dolores" in text] == []


def test_a_run_on_an_engine_elsewhere_mounts_no_folder_that_could_tell_a_place() -> None:
    """k6 has its scripts in a volume there."""
    k6 = {"volumes": [{"type": "volume", "target": "/k6"}], "user": "1500:1500"}

    kept = redact_composed({"services": {"k6": k6}}, {"LAB_USER": "1500:1500"})

    assert kept == {"services": {"k6": k6 | {"user": LOCAL["LAB_USER"]}}}


def test_the_variables_of_a_record_are_those_of_the_compose_file() -> None:
    text = COMPOSE_FILE.read_text()

    assert [asked for asked in LOCAL.values() if asked not in text] == []
