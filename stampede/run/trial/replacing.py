"""Replace the workers of trials while their loads go on: by HUP, or by a restart of one replica after another."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter

from python_on_whales.exceptions import DockerException

from stampede.docker.commands import last_line
from stampede.docker.containers import ContainerInfo
from stampede.run.trial.containers import Phase, TrialContainers
from stampede.servers.replaced import Replaced

NGINX_LEARNS_AFTER_S = 1
"""How long nginx goes on passing requests to a replica that is to end, as a balancer of Kubernetes does."""
_END = 'server=$(cat /tmp/server) && rm /tmp/server && kill -TERM "$server"'
_START = """\
touch /tmp/again
until [ -e /tmp/server ] && [ "$(find /tmp/workers -type f -newer /tmp/server | wc -l)" -ge "$LAB_WORKERS" ] &&
  grep --quiet ":1F40 .* 0A " /proc/net/tcp /proc/net/tcp6
do sleep 0.1; done"""
"""Start the server again, and wait until all its workers have loaded the application, and it listens on port 8000
(1F40): no request asks it, because its workers would count the request."""
READY_WITHIN_S = 60


@contextmanager
def replace_workers(trials: Sequence[TrialContainers]) -> Iterator[None]:
    """Replace the workers of each trial so long after the block begins as its variant says; at its end, give up."""
    over = threading.Event()
    timers = []
    for trial in trials:
        if isinstance(variant := trial.planned.variant, Replaced):
            restart = partial(restart_replicas, trial, variant.pre_stop_s, over)
            actions = ((variant.hup_after_s, trial.reload), (variant.term_after_s, restart))
            timers += [threading.Timer(after_s, act) for after_s, act in actions if after_s]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        over.set()
        for timer in timers:
            timer.cancel()
            timer.join()


def restart_replicas(trial: TrialContainers, pre_stop_s: float, over: threading.Event) -> None:
    """Restart the servers of a trial one after another until ``over``, as a Deployment of Kubernetes does."""
    nginx = trial.front.container
    try:
        addresses = {replica.id: replica.execute(["hostname", "-i"]).split()[0] for replica in trial.servers}
        for replica in trial.servers:
            if trial.phase is not Phase.LOADING:
                return
            others = [address for of, address in addresses.items() if of != replica.id]
            _end(replica, pre_stop_s, partial(_tell, nginx, others), over)
            if over.is_set():
                return
            replica.execute(["timeout", str(READY_WITHIN_S), "sh", "-c", _START])
            _tell(nginx, addresses.values())
    except DockerException as error:
        trial.fail(f"its servers could not be restarted: {last_line(error)}")


def _end(replica: ContainerInfo, pre_stop_s: float, tell: Callable[[], None], over: threading.Event) -> None:
    """Send SIGTERM to a server after ``pre_stop_s``, and tell nginx, in the order of their times, until ``over``."""
    end = partial(replica.execute, ["sh", "-c", _END])
    steps: list[tuple[float, Callable[[], object]]] = [(pre_stop_s, end), (NGINX_LEARNS_AFTER_S, tell)]
    began = time.monotonic()
    for at_s, step in sorted(steps, key=itemgetter(0)):
        if over.wait(max(0, began + at_s - time.monotonic())):
            return
        step()


def _tell(nginx: ContainerInfo, addresses: Iterable[str]) -> None:
    servers = " ".join(f"{address}:8000" for address in addresses)
    nginx.execute(["env", f"LAB_UPSTREAM={servers}", "start", "-s", "reload"])
