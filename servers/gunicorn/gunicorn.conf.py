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

dirty_workers = int(os.environ.get("LAB_DIRTY_WORKERS", "0"))
dirty_apps = ["dirty_app:Burning"] if dirty_workers else []

worker_tmp_dir = "/dev/shm"  # keeps the heartbeat file in memory
control_socket_disable = True  # from 25.1 on, all instances would use the same path
max_requests = int(os.environ.get("LAB_MAX_REQUESTS", "0"))
max_requests_jitter = int(os.environ.get("LAB_MAX_REQUESTS_JITTER", "0"))
_is_replaced = max_requests or any(float(os.environ.get(f"LAB_{signal}_AFTER_S", "0")) for signal in ("HUP", "TERM"))
graceful_timeout = 10 if _is_replaced else 1  # after the load, no client waits for an answer


def on_starting(server: Any) -> None:
    settings: dict[str, Any] = {name: repr(setting.get()) for name, setting in sorted(server.cfg.settings.items())}
    settings["raw_env"] = "left out, because it may have secrets"
    Path("/tmp/settings").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


if not wsgi_app.startswith("fastapi"):  # these count; the hook would fail after each request

    def post_worker_init(worker: Any) -> None:
        worker.counters = Counters("served", *getattr(worker, "counted", ()))

    def post_request(worker: Any, _request: Any, _environ: Any, _response: Any) -> None:
        worker.counters.add("served")
