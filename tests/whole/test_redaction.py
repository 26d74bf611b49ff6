"""stampede.docker.redaction: no record tells where a run was made."""

import platform
import tempfile
from pathlib import Path

import pytest

from stampede.docker import redaction
from stampede.docker.redaction import LOCAL, local_words, redact, redact_composed
from stampede.paths import COMPOSE_FILE

HOST, USER = "dolores-thinkpad-7", "dolores"
CHECKOUT = "/opt/sources-of-dolores/stampede"
RESULTS = "/srv/data-of-dolores/results"


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


def test_a_run_on_an_engine_elsewhere_mounts_no_folder_that_could_tell_a_place() -> None:
    """k6 has its scripts in a volume there."""
    k6 = {"volumes": [{"type": "volume", "target": "/k6"}], "user": "1500:1500"}

    kept = redact_composed({"services": {"k6": k6}}, {"LAB_USER": "1500:1500"})

    assert kept == {"services": {"k6": k6 | {"user": LOCAL["LAB_USER"]}}}


def test_the_variables_of_a_record_are_those_of_the_compose_file() -> None:
    text = COMPOSE_FILE.read_text()

    assert [asked for asked in LOCAL.values() if asked not in text] == []
