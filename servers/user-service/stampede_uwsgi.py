"""The application of somebody's own service for uWSGI, with the wrapper; STAMPEDE_CALLABLE names it."""

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import uwsgi
from stampede_own import counters, load, wsgi

_module, _, _name = os.environ["STAMPEDE_CALLABLE"].partition(":")


def _application() -> Callable[..., Any]:
    if importlib.util.find_spec(_module.partition(".")[0]) is None or not _module.replace(".", "").isidentifier():
        spec = importlib.util.spec_from_file_location("uwsgi_file", f"{_module.replace('.', '/')}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, _name)  # type: ignore[no-any-return]
    return load(os.environ["STAMPEDE_CALLABLE"])  # type: ignore[no-any-return]


application = wsgi(_application(), at_once=uwsgi.worker_id() > 0)
_before = getattr(uwsgi, "post_fork_hook", None)


def post_fork_hook() -> None:
    """Note that a worker is ready, and do what the application has asked for."""
    if uwsgi.worker_id() > 0:
        counters()
    if _before:
        _before()


uwsgi.post_fork_hook = post_fork_hook
