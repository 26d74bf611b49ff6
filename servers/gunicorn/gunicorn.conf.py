"""gunicorn's settings, for every release. They come from the experiment and never depend on the machine.

Somebody's own application may have settings of its own, own_settings.py. They count unless this file sets them too, and
their hooks are called. Settings of the place where the application runs at home are left out, and so are those that
replace workers. The settings in force name those that are left out and that change how long requests wait.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from counters import Counters

_OF_THE_PLACE = (
    "accesslog", "certfile", "chdir", "chroot", "daemon", "errorlog", "group", "initgroups", "keyfile", "max_requests",
    "max_requests_jitter", "pidfile", "proxy_protocol", "pythonpath", "statsd_host", "syslog", "tmp_upload_dir",
    "umask", "user", "worker_class",
)  # fmt: skip
_OF_WAITING = (
    "keepalive", "max_requests", "max_requests_jitter", "reuse_port", "threads", "worker_class", "worker_connections",
    "workers",
)  # fmt: skip
_asked: dict[str, object] = {}
_own = Path(__file__).with_name("own_settings.py")
if _own.exists():
    os.environ.update(json.loads(_own.with_name("environment.json").read_text(encoding="utf-8")))
    _folder = os.environ.get("LAB_FOLDER", "/opt/application")
    sys.path.insert(0, _folder)
    exec(compile(_own.read_text(encoding="utf-8"), "gunicorn.conf.py", "exec"))  # noqa: S102  # gunicorn does the same
    sys.path.remove(_folder)
    _asked = {name: globals()[name] for name in _OF_WAITING if name in globals()}
    for _name in _OF_THE_PLACE:
        globals().pop(_name, None)
_hooks = {name: globals().get(name) for name in ("on_starting", "post_worker_init", "post_request")}

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
max_requests = int(os.environ.get("LAB_MAX_REQUESTS", "0"))
max_requests_jitter = int(os.environ.get("LAB_MAX_REQUESTS_JITTER", "0"))
_is_replaced = max_requests or any(float(os.environ.get(f"LAB_{signal}_AFTER_S", "0")) for signal in ("HUP", "TERM"))
if os.environ.get("LAB_TIMEOUT_S", "0") != "0":
    timeout = int(os.environ["LAB_TIMEOUT_S"])
if os.environ.get("LAB_PRELOAD") == "true":
    preload_app = True
graceful_timeout = 10 if _is_replaced else 1  # after the load, no client waits for an answer


def on_starting(server: Any) -> None:
    settings: dict[str, Any] = {name: repr(setting.get()) for name, setting in sorted(server.cfg.settings.items())}
    settings["raw_env"] = "left out, because it may have secrets"
    in_force = {name: globals().get(name, 0) for name in _asked}
    settings["left_out"] = {name: repr(value) for name, value in _asked.items() if value != in_force[name]}
    Path("/tmp/settings").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    _call("on_starting", server)


def _call(hook: str, *of: Any) -> None:
    if called := _hooks[hook]:
        called(*of[: called.__code__.co_argcount])  # gunicorn allows post_request to take fewer


if not wsgi_app.startswith(("fastapi", "own:asgi")):  # these count; the hook would fail after each request

    def post_worker_init(worker: Any) -> None:
        worker.counters = Counters("served", *getattr(worker, "counted", ()))
        _call("post_worker_init", worker)

    def post_request(worker: Any, request: Any, environ: Any, response: Any) -> None:
        worker.counters.add("served")
        _call("post_request", worker, request, environ, response)
