"""Python runs this when it starts, because ``stampede-probe run`` puts this folder first on PYTHONPATH."""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _next() -> None:
    """Run the sitecustomize that would have run without the probe."""
    import importlib.machinery
    import importlib.util

    others = [one for one in sys.path if os.path.abspath(one or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _install() -> None:
    try:
        sys.path.append(os.path.dirname(os.path.dirname(_here)))  # a server with a Python environment of its own
        from stampede_probe import hooks, worker

        if os.environ.get("STAMPEDE_PROBE_SERVER") == str(os.getpid()):
            from stampede_probe import serve, watch  # noqa: F401  # its workers then share them

            worker.memory()  # before the server forks its workers and gives up its rights
            worker.state.keeps_file = os.getpid()
        hooks.install()
    except Exception as error:  # the server starts without the probe
        sys.stderr.write("stampede-probe: not installed, because %r.\n" % error)


_install()
_next()
