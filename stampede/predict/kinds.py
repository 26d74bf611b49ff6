"""Further kinds of options, in which only somebody's own application is served, and their names in words."""

from stampede.predict.options import MORE_THREADS, OPTION_KINDS, OptionKind, gthread

OWN_KINDS = (
    OptionKind("map-socket", "map-socket",
         "uWSGI, a listening socket for each process: nginx passes a request to the process that has the fewest "
         "requests.",
         lambda workers, threads: {"server": "uwsgi", "workers": workers, "threads": threads}),
    OptionKind("sync", "sync",
         "gunicorn: a process in place of each of today's threads; it accepts a connection when it is free.",
         lambda workers, threads: {"server": "gunicorn-sync", "workers": workers * threads}),
    OptionKind("gunicorn", "gunicorn gthread",
         "gunicorn's class gthread with as many processes and threads as today: a busy worker still accepts "
         "requests.",
         gthread),
    OptionKind("granian", "granian",
         "granian with today's number of processes (for WSGI, also of threads): from 2.8 on, each process has its own "
         "listening socket, and the kernel chooses a socket without knowing which process is busy.",
         lambda workers, threads: {"server": "granian", "workers": workers, "threads": threads}),
    OptionKind("uvicorn", "uvicorn",
         "uvicorn with today's number of processes, which accept requests from a socket that they share.",
         lambda workers, _: {"server": "uvicorn", "workers": workers}),
    OptionKind("more-workers", "more workers",
         "As many processes as the machine has cores, or twice as many as today if that is more: each has its own "
         "interpreter lock, event loop and pools, and can use one more processor. Each needs memory.", gthread),
    MORE_THREADS,
    OptionKind("gthread", "gthread",
         "gunicorn's class gthread with a thread for each user, and at least four in each process: a request that "
         "blocks or computes holds up one thread, and not all requests of its worker. The application must be safe for "
         "threads.",
         gthread),
    OptionKind("jitter", "a jitter",
         "Up to twice max_requests, by chance for each worker, so that workers are not replaced together. Cost: some "
         "workers live for twice as long, and leak for as long.", gthread),
    OptionKind("never-replaced", "no max_requests",
         "No worker is replaced. Cost: memory that leaks is never given back.", gthread),
    OptionKind("preload", "preload_app",
         "gunicorn loads the application once and forks its workers, so that a new worker is ready at once. Cost: HUP "
         "loads no new code, and connections that are opened while it is loaded are shared.", gthread),
    OptionKind("longer-timeout", "a longer timeout",
         "The server waits ten times as long for a sign of life before it kills a worker. Cost: a worker that really "
         "hangs stays for as long.", gthread),
)  # fmt: skip
"""Further ways, which only somebody's own application is served in. The last seven lift a limit that was found."""

KINDS = (*OPTION_KINDS, *OWN_KINDS)


def label_of(option: str) -> str:
    """Return in words how an option with a name such as limit-4x2 serves."""
    kind = option.rpartition("-")[0].removeprefix("advised-")
    label = next((each.label for each in KINDS if each.name == kind), None)
    return option if label is None else f"advised: {label}" if option.startswith("advised-") else label
