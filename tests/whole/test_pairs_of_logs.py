"""stampede diagnose: the logs of balancers and servers as people have them, with clocks and hosts of their own."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from stampede.errors import WrongUse
from stampede.logs.diagnose.diagnosis import Asked, Diagnosis, diagnose_logs
from tests.whole.test_diagnose import said_of, serve, truth
from tools.production_logs import Served

Write = Callable[[Served], str]


def clf(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("[%d/%b/%Y:%H:%M:%S +0000]")


def iso(at: float, timespec: str = "milliseconds") -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec=timespec)[: 19 if timespec == "seconds" else -6]


def took(request: Served) -> float:
    return request.answered - request.sent


def worked(request: Served) -> float:
    return request.ended - request.began


BALANCERS: dict[str, Write] = {
    "nginx": lambda r: f'198.51.100.7 - - {clf(r.answered)} "GET /{r.request_class}?q=1 HTTP/1.1" 200 9 "-" "curl" '
                       f"rt={took(r):.3f} at={r.answered:.3f}",
    "an AWS load balancer, with whole addresses": lambda r: f"https {iso(r.answered, 'microseconds')}Z app/shop/50dc "
        f"198.51.100.7:49096 10.0.1.6:8000 0.000 {took(r):.3f} 0.000 200 200 475 17709 "
        f'"GET https://shop.example:443/{r.request_class}?q=1 HTTP/2.0" "curl/8" - - arn:x "Root=1" "-" "-" 0',
    "Traefik, whole seconds of the start": lambda r: f'198.51.100.7 - - {clf(r.sent)} "GET /{r.request_class} HTTP/1" '
        f'200 9 "-" "-" 7 "shop@docker" "http://172.18.0.4:8000" {1000 * took(r):.0f}ms',
    "Caddy": lambda r: json.dumps({"ts": r.answered, "request": {"method": "GET", "uri": f"/{r.request_class}"},
                                   "duration": took(r), "status": 200}),
    "Apache, whole seconds of the start": lambda r: f'198.51.100.7 - - {clf(r.sent)} "GET /{r.request_class} HTTP/1.1" '
                                                    f'200 9 "-" "curl" duration_us={1e6 * took(r):.0f} pid=3',
    "Google's, in the order of the starts": lambda r: json.dumps({"timestamp": f"{iso(r.sent, 'microseconds')}Z",
        "httpRequest": {"requestMethod": "GET", "requestUrl": f"https://shop.example/{r.request_class}", "status": 200,
                        "latency": f"{took(r):.6f}s"}}),
    "JSON with the start": lambda r: json.dumps({"timestamp": f"{iso(r.sent, 'microseconds')}Z", "method": "GET",
        "path": f"/{r.request_class}", "status": 200, "duration": f"{took(r):.6f}"}),
}  # fmt: skip
SERVERS: dict[str, Write] = {
    "gunicorn": lambda r: f'10.0.0.9 - - {clf(r.ended)} "GET /{r.request_class} HTTP/1.0" 200 9 "-" "curl" '
                          f"{worked(r):.6f} <{r.worker[4:]}>",
    "gunicorn, precise": lambda r: f"{SERVERS['gunicorn'](r)} at={r.ended:.6f}",
    "hypercorn behind its logger": lambda r: f"[{iso(r.ended, 'seconds').replace('T', ' ')} +0000] [{r.worker[4:]}] "
        f'[INFO] 10.0.0.9:5000 - - {clf(r.ended)} "GET /{r.request_class} 1.1" 200 9 "-" "curl" {worked(r):.6f}',
    "uWSGI, whole seconds of the start": lambda r: f"[pid: {r.worker[4:]}|app: 0|req: 7/9] 10.0.0.9 () {{4 vars in 91 "
        f"bytes}} [{datetime.fromtimestamp(r.began, UTC):%a %b %e %H:%M:%S %Y}] GET /{r.request_class} => generated 17 "
        f"bytes in {1000 * worked(r):.0f} msecs (HTTP/1.1 200) 5 headers in 180 bytes (1 switches on core 0)",
    "gunicorn in a container": lambda r: json.dumps({"log": f"{SERVERS['gunicorn'](r)}\n", "stream": "stdout",
                                                     "time": f"{iso(r.ended + 0.0002, 'microseconds')}123Z"}),
    "aiohttp, whole seconds of the start": lambda r: f'10.0.0.9 {clf(r.began)} "GET /{r.request_class} HTTP/1.1" 200 9 '
                                                     f'"-" "curl" {worked(r):.6f}',
    "granian, whole seconds of the start": lambda r: f"[{iso(r.began, 'seconds').replace('T', ' ')} +0000] 10.0.0.9 - "
        f'"GET /{r.request_class} HTTP/1.1" 200 {1000 * worked(r):.3f}',
}  # fmt: skip


def shifted(request: Served, by_s: float) -> Served:
    times = {name: getattr(request, name) + by_s for name in ("sent", "answered", "began", "ended")}
    return request._replace(**times)


def write(path: Path, requests: Sequence[Served], line: Write, ahead_s: float = 0.0) -> Path:
    """Write a log, whose lines are in the order in which requests ended, by a clock that is ahead."""
    ended = sorted(requests, key=lambda request: request.ended)
    path.write_text("".join(f"{line(shifted(request, ahead_s))}\n" for request in ended))
    return path


def diagnosed(balancers: Sequence[Path], servers: Sequence[Path]) -> Diagnosis:
    clocks = dict.fromkeys(balancers, "balancer") | dict.fromkeys(servers, "server")
    return diagnose_logs(Asked([*balancers, *servers], clocks))  # type: ignore[arg-type]


def of_pair(folder: Path, balancer: Write, server: Write, ahead_s: float = 0.0) -> Diagnosis:
    """Return what two logs of the simulated service tell, of which the server's clock is ahead."""
    return diagnosed([write(folder / "b.log", serve(), balancer)], [write(folder / "s.log", serve(), server, ahead_s)])


def tells_the_truth(found: Diagnosis) -> bool:
    """Whether all lines are joined, and the share of requests that waited for more than 50 ms is right."""
    share = float((truth()[0] > 0.05).mean())
    assert found.findings.waited.likely == pytest.approx(share, abs=0.01)
    return found.requests.in_both > 0.99 and len(found.requests) == pytest.approx(len(serve()), rel=0.01)


@pytest.mark.parametrize("balancer", BALANCERS)
@pytest.mark.parametrize("server", SERVERS)
def test_the_logs_of_each_balancer_and_each_server_tell_who_waited(tmp_path: Path, balancer: str, server: str) -> None:
    found = of_pair(tmp_path, BALANCERS[balancer], SERVERS[server])
    assert tells_the_truth(found)
    assert found.findings.cause in ("avoidable", "coarse")


def test_behind_the_only_address_of_a_balancer_may_be_several_workers(tmp_path: Path) -> None:
    """No log names them, and whole seconds do not tell how many threads there are."""
    found = of_pair(tmp_path, BALANCERS["Traefik, whole seconds of the start"],
                    SERVERS["granian, whole seconds of the start"])  # fmt: skip
    low, _, high = found.findings.avoidably
    assert low <= truth()[1] <= high


@pytest.mark.parametrize("ahead_s", [7.3, -40.6, 9 * 3600 + 0.5])
@pytest.mark.parametrize("server", ["gunicorn", "uWSGI, whole seconds of the start"])
def test_a_clock_is_found_although_a_log_has_whole_seconds(tmp_path: Path, server: str, ahead_s: float) -> None:
    found = of_pair(tmp_path, BALANCERS["nginx"], SERVERS[server], ahead_s)
    assert tells_the_truth(found)
    assert found.requests.joins[0][2].clock.ahead_s == pytest.approx(ahead_s, abs=0.1)


@pytest.mark.parametrize("wanders", [False, True])
def test_a_clock_that_drifts_is_told_by_the_order_of_lines_without_ids(tmp_path: Path, *, wanders: bool) -> None:
    first, last = serve()[0].sent, serve()[-1].sent

    def line(request: Served) -> str:
        passed = (request.ended - first) / (last - first)
        return SERVERS["gunicorn, precise"](shifted(request, 0.2 * np.sin(7 * passed) if wanders else 0.4 * passed))

    found = of_pair(tmp_path, BALANCERS["nginx"], line)
    assert tells_the_truth(found)
    assert "The times of s.log run unsteadily" in said_of(found)


def test_each_line_of_several_balancers_and_hosts_is_of_one_request(tmp_path: Path) -> None:
    """Without ids, and with clocks that differ, lines of two logs are never joined with the same line."""
    here, there = ([each for each in serve() if (int(each.worker[4:]) % 2 == 0) is even] for even in (True, False))
    line, balancer = SERVERS["gunicorn, precise"], BALANCERS["nginx"]
    hosts = write(tmp_path / "h0.log", here, line), write(tmp_path / "h1.log", there, line, ahead_s=3.4)
    halves = [write(tmp_path / f"b{half}.log", serve()[half::2], balancer, 0.7 * half) for half in (0, 1)]
    one, server = write(tmp_path / "b.log", serve(), balancer), write(tmp_path / "s.log", serve(), line)
    for balancers, servers in (([one], hosts), (halves, [server])):
        found = diagnosed(balancers, servers)
        assert tells_the_truth(found)
        assert found.findings.avoidably.likely == pytest.approx(truth()[1], abs=0.02)
        for log in {id(each): each for each, _, _ in found.requests.joins}.values():
            joined = np.concatenate([pairs.balancer for its, _, pairs in found.requests.joins if its is log])
            assert len(np.unique(joined)) == len(joined)


@pytest.mark.parametrize(
    "written_by",
    ["web-{n}  | ", "\x1b[36mshop_web_{n}   | \x1b[0m", "[pod/shop-7d4b9c-x{n}x1z/web] ", "shop-7d4b9cf8d-x{n}x1z web ",
     "Nov 28 10:00:00 web{n} gunicorn[7]: ", "2026-11-28T10:00:00+0000 web{n} gunicorn[7]: "],
)  # fmt: skip
def test_workers_of_several_containers_in_one_log_are_told_apart(tmp_path: Path, written_by: str) -> None:
    """In each container, the worker is the process 7."""

    def line(request: Served) -> str:
        return written_by.format(n=request.worker[-1]) + re.sub(r"<\d+>$", "<7>", SERVERS["gunicorn"](request))

    found = of_pair(tmp_path, BALANCERS["nginx"], line)
    assert tells_the_truth(found)
    assert (found.capacity.workers, found.findings.cause) == (4, "avoidable")


def test_paths_that_a_server_has_decoded_are_the_same(tmp_path: Path) -> None:
    found = of_pair(tmp_path, lambda r: BALANCERS["nginx"](r._replace(request_class="caf%C3%A9")),
                    lambda r: SERVERS["gunicorn"](r._replace(request_class="café")))  # fmt: skip
    assert tells_the_truth(found)


def test_ids_that_are_spelled_in_two_ways_are_the_same(tmp_path: Path) -> None:
    """Of a UUID, nginx writes 32 digits, and many programs write it with hyphens, or in capitals."""
    ids = {request: str(UUID(int=number << 96 | number)) for number, request in enumerate(serve())}
    found = of_pair(tmp_path, lambda r: f"{BALANCERS['nginx'](r)} id={ids[r].replace('-', '')}",
                    lambda r: f"{SERVERS['gunicorn'](r)} id={ids[r].upper()}")  # fmt: skip
    assert tells_the_truth(found)
    assert found.requests.joins[0][2].by_id == len(ids)


@pytest.mark.parametrize("written", ['"{}"', "{}"])
@pytest.mark.parametrize("between", [", ", ","])
def test_of_a_list_of_ids_the_last_is_the_balancers(tmp_path: Path, written: str, between: str) -> None:
    """A client has sent an id of its own, and gunicorn writes headers of the same name as one."""
    ids = {request: UUID(int=number << 96 | number).hex for number, request in enumerate(serve())}
    clients = {request: f"client-{number}{between}" * (number % 3 == 0) for number, request in enumerate(serve())}
    found = of_pair(tmp_path, lambda r: f"{BALANCERS['nginx'](r)} id={ids[r]}",
                    lambda r: f"{SERVERS['gunicorn'](r)} id={written.format(clients[r] + ids[r])}")  # fmt: skip
    assert tells_the_truth(found)
    assert found.requests.joins[0][2].by_id == len(ids)


def test_lines_without_a_duration_are_counted_and_their_work_too(tmp_path: Path) -> None:
    """A request of which only the server says how long it took keeps a thread busy nevertheless."""

    def nginx(request: Served) -> str:
        return re.sub(r"rt=\S+", "rt=-" if int(1000 * request.sent) % 7 == 0 else r"\g<0>", BALANCERS["nginx"](request))

    found = of_pair(tmp_path, nginx, SERVERS["gunicorn"])
    assert len(found.requests) == pytest.approx(len(serve()), rel=0.01)
    assert re.search(r"1\d\d lines of b\.log have no duration", said_of(found))


def test_a_log_sorted_by_the_times_of_starts_is_told_by_the_other_log(tmp_path: Path) -> None:
    """Its own order does not tell that its times are those of starts."""
    sent = sorted(serve(), key=lambda request: request.sent)
    (balancer := tmp_path / "b.log").write_text(
        "".join(f"{BALANCERS['JSON with the start'](request)}\n" for request in sent))  # fmt: skip
    found = diagnosed([balancer], [write(tmp_path / "s.log", serve(), SERVERS["gunicorn, precise"])])
    assert tells_the_truth(found)
    assert "The times of b.log are those at which requests came" in said_of(found)


@pytest.mark.parametrize("process", ["pid=7", '"pid": 7'])
def test_the_process_of_a_balancer_is_no_worker(tmp_path: Path, process: str) -> None:
    def without(request: Served) -> str:
        return re.sub(r" <\d+>", "", SERVERS["gunicorn, precise"](request))

    found = of_pair(tmp_path, lambda request: f"{BALANCERS['nginx'](request)} {process}", without)
    assert (tells_the_truth(found), found.capacity.seen) == (True, 0)


HEADERS: dict[str, Callable[[Served], str]] = {
    "docker's precise time": lambda r: json.dumps({"log": f'{SERVERS["gunicorn"](r)} "t={r.sent:.3f}"\n',
                                                   "time": f"{iso(r.ended + 0.0002, 'microseconds')}123Z"}),
    "a header without a name": lambda r: f'{SERVERS["gunicorn, precise"](r)} "{r.sent:.3f}"',
    "a header in microseconds without a name": lambda r: f'{SERVERS["gunicorn, precise"](r)} "{1e6 * r.sent:.0f}"',
    "times of starts": lambda r: f'10.0.0.9 [{iso(r.began, "microseconds")}Z] "GET /{r.request_class} HTTP/1.1" 200 9 '
                                 f"{worked(r):.6f} x_request_start=t={r.sent:.3f}",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_servers_log_with_a_header_tells_who_waited(tmp_path: Path, name: str) -> None:
    assert tells_the_truth(diagnosed([], [write(tmp_path / "s.log", serve(), HEADERS[name])]))


def test_durations_in_another_unit_are_no_waits(tmp_path: Path) -> None:
    def in_ms(request: Served) -> str:
        return re.sub(r"rt=\S+", f"rt={1000 * took(request):.3f}", BALANCERS["nginx"](request))

    with pytest.raises(WrongUse, match="so the durations of one of them are in another unit"):
        of_pair(tmp_path, in_ms, SERVERS["gunicorn, precise"])


def test_a_balancer_that_changes_paths_is_named_among_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="Hardly any line") as refused:
        of_pair(tmp_path, lambda r: BALANCERS["nginx"](r._replace(request_class="api")), SERVERS["gunicorn"])
    assert "changes paths" in " ".join((refused.value.hint or "").split())


@pytest.mark.parametrize("empty", ["b.log.1", "s.log.2.gz", "other-host.log"])
def test_an_empty_file_beside_others_is_named(tmp_path: Path, empty: str) -> None:
    balancer = write(tmp_path / "b.log", serve(), BALANCERS["nginx"])
    server = write(tmp_path / "s.log", serve(), SERVERS["gunicorn"])
    (nothing := tmp_path / empty).write_bytes(b"")
    found = diagnosed([balancer], [server, nothing])

    assert tells_the_truth(found)
    assert f"The file {empty} is empty." in said_of(found)


@pytest.mark.parametrize("empty", ["b.log", "s.log"])
def test_an_empty_log_that_is_the_only_one_of_its_kind_is_refused(tmp_path: Path, empty: str) -> None:
    balancer = write(tmp_path / "b.log", serve(), BALANCERS["nginx"])
    server = write(tmp_path / "s.log", serve(), SERVERS["gunicorn"])
    (tmp_path / empty).write_bytes(b"")
    with pytest.raises(WrongUse, match=f"{empty}: there is no request in it"):
        diagnosed([balancer], [server])
