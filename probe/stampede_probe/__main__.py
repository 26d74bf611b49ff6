"""The command ``stampede-probe``: start a server with the probe, and look at servers that run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from stampede_probe import __version__
from stampede_probe.shared import H_CREATOR, Shared, find
from stampede_probe.top import screen


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="stampede-probe", description=__doc__)
    parser.add_argument("--version", action="version", version=f"stampede-probe {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="start a server with the probe: stampede-probe run gunicorn shop.wsgi")
    run.add_argument(
        "--metrics", metavar="PORT|PATH", help="serve Prometheus text on this loopback port or Unix socket"
    )
    run.add_argument("--rows", metavar="FOLDER", help="write two lines for each request into files of this folder")
    run.add_argument("--segments", action="store_true", help="routes that no framework names: keep a path's first part")
    run.add_argument("server", nargs=argparse.REMAINDER, metavar="SERVER …", help="the command that starts the server")
    for name, says in (
        ("top", "show what each worker is doing, each second"),
        ("snapshot", "print all that is known as JSON"),
        ("metrics", "print the text for Prometheus"),
    ):
        one = commands.add_parser(name, help=says)
        one.add_argument("file", nargs="?", help="the file of the server; needed if several servers run here")
        if name == "top":
            one.add_argument("--once", action="store_true", help="print once, and end")
    given = parser.parse_args(arguments)
    try:
        return start(given) if given.command == "run" else show(given)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0


def start(given: argparse.Namespace) -> int:
    """Become the server, with the probe in its environment."""
    command = given.server[1:] if given.server[:1] == ["--"] else given.server
    if not command:
        print("stampede-probe: which server? Such as: stampede-probe run gunicorn shop.wsgi", file=sys.stderr)
        return 2
    from stampede_probe import worker

    find()
    shared = Shared.create()
    environment = dict(os.environ)
    if shared.descriptor >= 0:
        environment[worker.FILE] = shared.path
        if shared.path.startswith("/proc/"):
            os.set_inheritable(shared.descriptor, True)
    environment[worker.SERVER_PROCESS] = str(os.getpid())
    site = Path(__file__).parent / "site"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), environment.get("PYTHONPATH")]))
    for name, value in (("METRICS", given.metrics), ("ROWS", given.rows), ("SEGMENTS", "1" if given.segments else "")):
        if value:
            environment[f"STAMPEDE_PROBE_{name}"] = (
                str(Path(value).absolute()) if name == "ROWS" or "/" in value else value
            )
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  # what the user typed
    except OSError as error:
        if shared.path and not shared.path.startswith("/proc/"):
            os.unlink(shared.path)
        print(f"stampede-probe: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def show(given: argparse.Namespace) -> int:
    """Print what is known of a server."""
    from stampede_probe.serve import metrics, snapshot

    files = [given.file] if given.file else find()
    if len(files) != 1:
        print(
            "stampede-probe: " + ("several servers run here; name one of:" if files else NONE),
            *map(_described, files),
            sep="\n",
            file=sys.stderr,
        )
        return 2
    try:
        shared = Shared.open(files[0], patience_s=0)
    except OSError as error:
        print(f"stampede-probe: {error}", file=sys.stderr)
        return 2
    if given.command == "metrics":
        print(metrics(shared), end="")
    elif given.command == "snapshot":
        print(json.dumps(snapshot(shared)))
    else:
        top(lambda: snapshot(shared), once=given.once or not sys.stdout.isatty())
    return 0


def _described(path: str) -> str:
    """Return the path of a server's file, with the process that started the server and its command."""
    from stampede_probe.worker import printable

    process = Shared.open(path, patience_s=0).q[H_CREATOR]
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    command = " ".join(os.path.basename(word.decode("utf-8", "replace")) for word in words).strip()
    return f"{path}  process {process}: {printable(command) or 'has ended'}"


NONE = (
    "no server with the probe runs here as this user. Containers that share no memory are hosts of their own: "
    "run this in the server's container."
)


def top(read: Any, *, once: bool) -> None:
    """Show the screen, each second until Ctrl-C."""
    while True:
        size = os.get_terminal_size() if not once else os.terminal_size((80, 200))
        lines = screen(read(), min(size.columns, 80) if once else size.columns, size.lines - 1)
        if once:
            print("\n".join(lines))
            return
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
