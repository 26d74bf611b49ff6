"""Replace the workers of a trial while its load goes on: by HUP, or by a restart of one replica after another."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

from stampede.docker.client import DockerError
from stampede.servers.base import Replaced

if TYPE_CHECKING:
    from stampede.run.trial.trial import Trial

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


async def replace_workers(trial: "Trial", at: float) -> None:
    """Replace the workers of a trial so long after the moment ``at`` (epoch seconds) as its variant says.

    Fail because of what is refused; the load goes on. To give up, cancel this.
    """
    variant = trial.planned.variant
    if not isinstance(variant, Replaced):
        return
    acts = [(variant.hup_after_s, reload), (variant.term_after_s, restart_replicas)]
    for after_s, act in sorted((act for act in acts if act[0]), key=itemgetter(0)):
        await asyncio.sleep(at + after_s - time.time())
        await act(trial)


async def reload(trial: "Trial") -> None:
    """Send HUP to the servers, which then replace their workers."""
    for container in trial.servers:
        try:
            await container.machine.call("container", "kill", "--signal", "HUP", container.id)
        except DockerError as error:
            trial.fail(f"{container.name} did not get HUP: {error}")


async def restart_replicas(trial: "Trial") -> None:
    """Restart the servers of a trial one after another, as a Deployment of Kubernetes does."""
    nginx, variant = trial.front.container, trial.planned.variant
    assert isinstance(variant, Replaced)

    async def tell(addresses: Iterable[str]) -> None:
        servers = " ".join(f"{address}:8000" for address in addresses)
        await nginx.execute("env", f"LAB_UPSTREAM={servers}", "start", "-s", "reload")

    try:
        addresses = {replica.id: (await replica.execute("hostname", "-i")).split()[0] for replica in trial.servers}
        for replica in trial.servers:
            others = [address for of, address in addresses.items() if of != replica.id]
            began = time.monotonic()
            steps: list[tuple[float, Callable[[], Awaitable[object]]]] = [
                (variant.pre_stop_s, partial(replica.execute, "sh", "-c", _END)),
                (NGINX_LEARNS_AFTER_S, partial(tell, others)),
            ]
            for after_s, step in sorted(steps, key=itemgetter(0)):
                await asyncio.sleep(began + after_s - time.monotonic())
                await step()
            await replica.execute("timeout", str(READY_WITHIN_S), "sh", "-c", _START)
            await tell(addresses.values())
    except DockerError as error:
        trial.fail(f"its servers could not be restarted: {error}")
