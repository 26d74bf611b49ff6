"""The programs in the lab's images: what is there, which configuration they accept, what they refuse to start with."""

from itertools import product

import pytest

from stampede.paths import SERVERS
from tests.boxes import BoxOf


def test_a_box_tells_the_runs_apart(box_of: BoxOf) -> None:
    """Were they mixed up, or one left out, a program that starts could pass for another that must not."""
    command = 'echo "out $WORD"; echo "err $WORD" >&2; cat /tmp/left; echo "$WORD" > /tmp/left; exit "$CODE"'

    first, second = box_of("grafana/k6:2.1.0").each(
        command, [{"WORD": "it's $HOME", "CODE": "3"}, {"WORD": "two", "CODE": "0"}]
    )

    nothing_left = "cat: /tmp/left: No such file or directory\n"
    assert (first.returncode, first.stdout, first.stderr) == (3, "out it's $HOME\n", f"err it's $HOME\n{nothing_left}")
    assert (second.returncode, second.stdout, second.stderr) == (0, "out two\n", f"err two\n{nothing_left}")


TWO = {"LAB_UPSTREAM": "127.0.0.1:8000 127.0.0.1:8001"}
OF_NGINX = [
    {**TWO, "LAB_BALANCE": balance, "LAB_UPSTREAM_KEEPALIVE": keepalive, "LAB_UPSTREAM_CONNECTION": connection,
     "LAB_PROTOCOL": protocol, "LAB_SERVER_MAXCONN": "4", "LAB_RESEND": "true" if keepalive else "false"}
    for protocol, balance, (keepalive, connection) in product(
        ("http", "uwsgi", "fastcgi"), ("", "least_conn;", "random two least_conn;", "ewma"),
        (("", "close"), ("keepalive 4;", '""')))
]  # fmt: skip
OF_HAPROXY = [
    {**TWO, "LAB_BALANCE": balance, "LAB_UPSTREAM_KEEPALIVE": kept, "LAB_RESEND": "true" if kept == "4" else "false"}
    for balance, kept in product(("roundrobin", "leastconn", "random(2)"), ("0", "4"))
]
OF_ENVOY = [{**TWO, "LAB_BALANCE": balance} for balance in ("ROUND_ROBIN", "N_CHOICES", "FULL_SCAN")]


@pytest.mark.parametrize(
    ("balancer", "check", "environments"),
    [("nginx", "s/exec nginx/exec nginx -t/", OF_NGINX), ("haproxy", "s/exec haproxy/exec haproxy -c/", OF_HAPROXY),
     ("envoy", "s/--concurrency/--mode validate &/", OF_ENVOY)],
)  # fmt: skip
def test_a_balancer_accepts_its_configuration(
    box_of: BoxOf, balancer: str, check: str, environments: list[dict[str, str]]
) -> None:
    """In a network, without which it resolves no address."""
    command = f'sed "{check}" /usr/local/bin/start > /tmp/check && exec sh /tmp/check'

    checked = box_of(f"stampede/{balancer}:trixie", "bridge").each(command, environments)

    assert len(checked) == len(environments)
    assert [(one, done.stderr) for one, done in zip(environments, checked, strict=True) if done.returncode != 0] == []


QUICK_AND_SLOW = """
load_module modules/ndk_http_module.so; load_module modules/ngx_http_lua_module.so;
pid /tmp/two.pid; error_log /dev/stderr crit; events {}
http {
    access_log off; client_body_temp_path /tmp/a; proxy_temp_path /tmp/b;
    fastcgi_temp_path /tmp/c; uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
    server { listen 127.0.0.1:8001; location / { content_by_lua_block { ngx.say("quick") } } }
    server { listen 127.0.0.1:8002; location / { content_by_lua_block { ngx.sleep(0.5) ngx.say("slow") } } }
}
"""


def test_ewma_avoids_the_server_that_answers_slowly(box_of: BoxOf) -> None:
    """Of two servers, both are compared for each request, so the slow one is asked again when its average has sunk."""
    ask = "curl --silent --show-error --retry 99 --retry-delay 1 --retry-connrefused http://127.0.0.1"
    command = (
        f'echo "$TWO" > /tmp/two; nginx -c /tmp/two; (start > /tmp/log 2>&1 &); {ask}:8001; {ask}:8002; '
        f"for _ in $(seq 40); do {ask}:8080; done; kill $(cat /tmp/two.pid /tmp/nginx.pid)"
    )
    environment = {"TWO": QUICK_AND_SLOW, "LAB_UPSTREAM": "127.0.0.1:8001 127.0.0.1:8002", "LAB_BALANCE": "ewma",
                   "LAB_UPSTREAM_KEEPALIVE": "", "LAB_UPSTREAM_CONNECTION": "close"}  # fmt: skip

    done = box_of("stampede/nginx:trixie", "bridge").run(command, environment)

    quick, slow, *balanced = done.stdout.split()
    assert (done.returncode, quick, slow, len(balanced)) == (0, "quick", "slow", 40), done
    assert 1 <= balanced.count("slow") <= 5


@pytest.mark.parametrize(
    ("balancer", "factor", "value", "message"),
    [
        ("haproxy", "LAB_UPSTREAM_KEEPALIVE", "few",
         "LAB_UPSTREAM_KEEPALIVE must be a whole number, at least 0, and not few."),
        ("haproxy", "LAB_SERVER_MAXCONN", "2.5",
         "LAB_SERVER_MAXCONN must be a whole number, at least 0, and not 2.5."),
        ("haproxy", "LAB_QUEUE_TIMEOUT_S", "0", "LAB_QUEUE_TIMEOUT_S must be a whole number, at least 1, and not 0."),
        ("haproxy", "LAB_UPSTREAM", "nobody.invalid:8000",
         "The name nobody.invalid in LAB_UPSTREAM=nobody.invalid:8000 does not resolve."),
        ("envoy", "LAB_BALANCE", "random", "LAB_BALANCE must be ROUND_ROBIN, N_CHOICES or FULL_SCAN, and not random."),
    ],
)  # fmt: skip
def test_a_balancer_does_not_start_with_a_factor_that_makes_no_sense(
    box_of: BoxOf, balancer: str, factor: str, value: str, message: str
) -> None:
    """HAProxy itself reads a word as 0, which would be another experiment."""
    environment = {"LAB_UPSTREAM": "127.0.0.1:8000", factor: value}

    done = box_of(f"stampede/{balancer}:trixie").run("exec start", environment)

    assert (done.returncode, done.stderr) == (1, f"{message}\n")


@pytest.mark.parametrize("misspelt", ["lazy-app", "lisen"])
def test_uwsgi_does_not_start_with_an_option_that_it_does_not_know(box_of: BoxOf, misspelt: str) -> None:
    """Without its strict mode it would ignore either, and measure something else."""
    factors = {
        "WORKERS": "1", "THREADS": "1", "PROTOCOL": "http", "THUNDER_LOCK": "false", "MAP_SOCKET": "false",
        "SOMAXCONN": "4096", "APP": "wsgi:app",
    }  # fmt: skip
    environment = {f"LAB_{name}": value for name, value in factors.items()}
    start = f"mkdir /tmp/a; cd /tmp/a; (cat /srv/uwsgi.ini; echo {misspelt} = 1) > uwsgi.ini; exec start"

    done = box_of("stampede/uwsgi:2.0.31").run(start, environment)

    assert done.returncode == 1
    assert f"[strict-mode] unknown config directive: {misspelt}" in done.stderr


PROBE = "stampede_probe"


@pytest.mark.parametrize(
    ("image", "files"),
    [
        (
            "gunicorn:27.0.1",
            {"acceptors.py", "dirty_app.py", "event_loops.py", "gunicorn.conf.py", "gunicorn_idle_thread.py", PROBE},
        ),
        ("asgi:trixie", {"counted.py", PROBE}),
        ("uwsgi:2.0.31", {"application.py", "stats.py", "uwsgi.ini"}),
        ("flup:1.1.1", {"ready.py", "serve.py"}),
    ],
)
def test_the_image_holds_the_applications_and_nothing_else_of_ours(box_of: BoxOf, image: str, files: set[str]) -> None:
    applications = {path.name for path in (SERVERS / "app").glob("*.py")}

    done = box_of(f"stampede/{image}").run("ls /srv", {})

    assert set(done.stdout.split()) == {"__pycache__", "guestbook", *applications, *files}


def test_the_image_of_the_database_holds_an_empty_one_and_its_settings(box_of: BoxOf) -> None:
    done = box_of("stampede/mariadb:trixie").run("ls /srv", {})

    assert set(done.stdout.split()) == {"empty", "init.sql", "mariadb.cnf"}


def test_the_database_does_not_start_with_an_option_that_it_does_not_know(box_of: BoxOf) -> None:
    start = (
        'sed "s/mariadb.cnf/misspelt.cnf/; s:/srv/misspelt:/tmp/misspelt:" /usr/local/bin/start > /tmp/start; '
        "(cat /srv/mariadb.cnf; echo [mariadbd]; echo extra-prot = 3307) > /tmp/misspelt.cnf; exec sh /tmp/start"
    )

    done = box_of("stampede/mariadb:trixie").run(start, {"LAB_DATABASE_CONNECTIONS": "9"})

    assert done.returncode != 0
    assert "unknown variable 'extra-prot=3307'" in done.stderr
