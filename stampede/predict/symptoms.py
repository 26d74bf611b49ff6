"""What holds requests up, and what helps: one table for ``try``, ``diagnose``, ``advise`` and docs/how-to/symptoms.md.

Ways to share requests among workers are OPTION_KINDS, with what each costs; what else helps stands here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PAGE = "docs/how-to/symptoms.md"
"""Has a section for each symptom that ``diagnose`` names, and a row for each option with its cost."""


@dataclass(frozen=True)
class Symptom:
    """Why requests wait. ``verdict`` says it in a few words, for ``diagnose``, and ``says`` what is true meanwhile.

    ``cures`` are sentences by circumstance: what the requests do, or what the server is. ``section`` is that of PAGE
    that ``diagnose`` names.
    """

    verdict: str = ""
    section: str = ""
    says: str = ""
    cures: Mapping[str, str] = field(default_factory=dict)

    @property
    def more(self) -> str:
        """Where docs/ says more; empty: nowhere."""
        return f"More: {PAGE}#{self.section}" if self.section else ""


_LIMIT = "a limit of connections that idle connections use up (granian's backpressure, gunicorn's worker_connections)"
UNSEEN = ("Logs cannot tell this from requests that no log has, a slow way to the server (new TLS connections), a "
          "sub-request (auth_request), or a machine that paused.")  # fmt: skip
SYMPTOMS = {
    "avoidable-wait": Symptom(
        "Head-of-line blocking", "upstream-timed-out-while-workers-are-idle",
        "Their own worker was busy, and another had a free thread.",
        {"per-worker":
         "how workers accept connections: each worker has its own listening socket, and the kernel chooses a socket "
         "without knowing which worker has a free thread.",
         "shared":
         "how workers accept connections: a busy worker takes a connection from the shared socket, and no other worker "
         "can take it back.",
         "": "the balancer: it passes requests to a worker without knowing which worker has a free thread."}),
    "threads": Symptom(
        "Too few threads", "nginx-says-9-s-gunicorn-says-002-s",
        "The server's own durations do not show these waits: they begin when a thread takes the request."),
    "idle": Symptom(
        "The workers stood still", "users-wait-for-seconds-and-no-request-is-at-work",
        "No log says what held the workers: connections that say nothing or use up a limit of connections{restarts}, "
        "or a process that was stopped."),
    "overtaken": Symptom(
        "The workers were idle", "users-wait-for-seconds-and-no-request-is-at-work",
        f"Meanwhile, requests that came later were served at once. That fits {_LIMIT}{{one}}; so do clients that send "
        "slowly, which urt=$upstream_response_time in nginx's log_format would tell. More threads are no cure."),
    "unknown": Symptom(
        "Requests wait, and nothing explains it", "an-async-server-stops-for-seconds",
        "Their own worker took other requests meanwhile. {something} held it up that no log shows, such as code "
        "that blocks an event loop, or a processor at its limit.",
        {"": "That fits clients that send slowly or say nothing, C code that keeps the interpreter "
             "lock, and a limit of connections (granian's backpressure, gunicorn's worker_connections)."}),
    "away": Symptom(
        "Workers were away", "no-answers-for-seconds-every-few-minutes",
        "A worker that is killed or replaced answers nobody from its last line until the next worker has started; a "
        "request that is killed with it held a thread until then, and has no line. More threads are no cure as long "
        "as workers end."),
    "coarse": Symptom(
        "Requests wait, and times in whole seconds do not tell why", "two-clocks",
        cures={"": "stampede diagnose --setup prints the lines with precise times."}),
    "missing": Symptom("Nobody can tell the cause, because lines are missing", "two-clocks"),
    "processors": Symptom(cures={
        "few workers": "More threads do not help; more processes do.",
        "a limit": "More threads or processes do not help; a higher limit does, and requests that compute less.",
        "": "More threads or processes do not help; more processors do, and requests that compute less."}),
    "event-loop": Symptom(cures={
        "hub computes":
        "A function that computes holds up all greenlets of its worker. In other processes, or in the threads of "
        "worker_class gthread, it would let the other requests go on.",
        "hub blocks":
        "A driver that waits in C holds up all greenlets of its worker. The cure is a driver that the greenlets know, "
        "or worker_class gthread with threads.",
        "event loop computes":
        "In other processes, such as those of a ProcessPoolExecutor, functions that compute would let the other "
        "requests go on; in threads, they keep the interpreter lock.",
        "event loop blocks":
        "Calls that block belong into threads (asyncio.to_thread; in FastAPI, def instead of async def), and functions "
        "that compute belong into other processes."}),
    "interpreter-lock": Symptom(
        says="Functions that compute, C code, and a garbage collector with many objects hold the lock in any thread",
        cures={
            "a processor is free":
            "they belong into other processes, or more workers share the lock among fewer requests.",
            "": "only less computing gives it back sooner."}),
    "pool": Symptom(
        says="requests waited for a thread of the pool. FastAPI and Starlette run def end points there.",
        cures={"": "Make quick end points async def, raise total_tokens of "
                   "anyio.to_thread.current_default_thread_limiter(), or start more workers.",
               "computes": "Make quick end points async def, so that they need no thread."}),
    "executor": Symptom(
        says="calls of asyncio.to_thread or run_in_executor waited for a thread.",
        cures={"": "Give the loop an executor with more threads, wait without threads, or start more workers.",
               "computes": "What only waits needs no thread."}),
    "inside": Symptom(
        says="these requests wait inside the application: ",
        cures={"": "for a pool of connections or threads, a database, a lock or another service.",
               "asgiref": "for the only thread of asgiref's sync_to_async for thread-sensitive calls, its default.",
               "result": "for a pool of threads or processes, which is too small, or whose work waits itself.",
               "pool": "for a pool of connections, which is smaller than the requests at work need.",
               "lock": "for a lock or a limiter, which others hold.",
               "queue": "for a queue.",
               "dns": "for a name server.",
               "network": "for a database or another service, which answers later under this load.",
               "subprocess": "for other programs."}),
}  # fmt: skip
"""By the limit that ``try`` finds, or the cause that ``diagnose`` finds."""
