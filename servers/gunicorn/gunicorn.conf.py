"""gunicorn's settings, each from the experiment and none from the machine. Used by every release."""

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
asgi_loop = os.environ["LAB_LOOP"]  # releases before 24 skip what they do not know

worker_tmp_dir = "/dev/shm"  # the heartbeat file: never on a disk
control_socket_disable = True  # 25.1 and later would all share one path
graceful_timeout = 1  # a trial is over when its load has ended; nobody waits for an answer then


def on_starting(server: Any) -> None:
    settings = {name: repr(setting.get()) for name, setting in sorted(server.cfg.settings.items())}
    Path("/tmp/settings").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if not wsgi_app.startswith("fastapi"):  # which counts itself; the hook would fail after each request

    def post_worker_init(worker: Any) -> None:
        worker.counters = Counters("served", *getattr(worker, "counted", ()))

    def post_request(worker: Any, _request: Any, _environ: Any, _response: Any) -> None:
        worker.counters.add("served")
