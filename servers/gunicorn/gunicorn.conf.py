"""gunicorn's settings, for every release. They come from the experiment and never depend on the machine."""

import json
import os
from pathlib import Path
from typing import Any

from counters import Counters

bind = "0.0.0.0:8000"
wsgi_app = os.environ["LAB_APP"]

worker_class = os.environ["LAB_WORKER_CLASS"]
workers = int(os.environ["LAB_WORKERS"])
threads = int(os.environ["LAB_THREADS"] or 1)
worker_connections = int(os.environ["LAB_WORKER_CONNECTIONS"])
keepalive = int(os.environ["LAB_KEEPALIVE_S"])
reuse_port = os.environ["LAB_REUSE_PORT"] == "true"
asgi_loop = os.environ["LAB_LOOP"]  # releases before 24 ignore settings that they do not know

worker_tmp_dir = "/dev/shm"  # keeps the heartbeat file in memory
control_socket_disable = True  # from 25.1 on, all instances would use the same path
graceful_timeout = 1  # gunicorn is stopped after the load, when no client waits for an answer


def on_starting(server: Any) -> None:
    settings = {name: repr(setting.get()) for name, setting in sorted(server.cfg.settings.items())}
    Path("/tmp/settings").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if not wsgi_app.startswith("fastapi"):  # fastapi_app counts for itself; the hook would fail after each request

    def post_worker_init(worker: Any) -> None:
        worker.counters = Counters("served", *getattr(worker, "counted", ()))

    def post_request(worker: Any, _request: Any, _environ: Any, _response: Any) -> None:
        worker.counters.add("served")
