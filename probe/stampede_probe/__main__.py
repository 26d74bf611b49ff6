"""The command ``stampede-probe``: start a server with the probe, and look at servers that run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from stampede_probe import __version__
from stampede_probe.shared import H_CREATOR, Shared, find
from stampede_probe.top import screen

NONE = (
    "no server with the probe runs here as this user. Containers that share no memory are hosts of their own: "
    "run this in the server's container."
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(prog="stampede-probe", description=__doc__)
    parser.add_argument("--version", action="version", version=f"stampede-probe {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="start a server with the probe: stampede-probe run gunicorn shop.wsgi")
    run.add_argument("--metrics", type=int, metavar="PORT", help="serve Prometheus text on this loopback port")
    run.add_argument("--rows", metavar="FOLDER", help="write two lines for each request into files of this folder")
    run.add_argument("--segments", action="store_true", help="routes that no framework names: keep a path's first part")
    run.add_argument("server", nargs=argparse.REMAINDER, metavar="SERVER …", help="the command that starts the server")
    for name, says in (
        ("top", "show what each worker is doing, each second"),
        ("snapshot", "print all that is known as JSON"),
    ):
        one = commands.add_parser(name, help=says)
        one.add_argument("file", nargs="?", help="the file of the server; needed if several servers run here")
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
    find()
    shared = Shared.create()
    site = str(Path(__file__).parent / "site")
    told = {
        "STAMPEDE_PROBE_FILE": shared.path,
        "STAMPEDE_PROBE_SERVER": str(os.getpid()),
        "STAMPEDE_PROBE_METRICS": str(given.metrics or ""),
        "STAMPEDE_PROBE_ROWS": os.path.abspath(given.rows) if given.rows else "",
        "STAMPEDE_PROBE_SEGMENTS": "1" if given.segments else "",
    }
    environment = {**os.environ, **{name: value for name, value in told.items() if value}}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [site, environment.get("PYTHONPATH")]))
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606  # what the user typed
    except OSError as error:
        if shared.path:
            os.unlink(shared.path)
        print(f"stampede-probe: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127


def show(given: argparse.Namespace) -> int:
    """Print what is known of a server."""
    from stampede_probe.serve import snapshot
    from stampede_probe.worker import printable

    files = [given.file] if given.file else find()
    if len(files) != 1:
        print("stampede-probe: " + ("several servers run here; name one of:" if files else NONE), file=sys.stderr)
        for path in files:
            process = Shared.open(path, patience_s=0).q[H_CREATOR]
            try:
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                words = []
            command = " ".join(os.path.basename(word.decode("utf-8", "replace")) for word in words).strip()
            print(f"{path}  process {process}: {printable(command) or 'has ended'}", file=sys.stderr)
        return 2
    try:
        shared = Shared.open(files[0], patience_s=0)
    except OSError as error:
        print(f"stampede-probe: {error}", file=sys.stderr)
        return 2
    if given.command == "snapshot":
        print(json.dumps(snapshot(shared)))
    elif not sys.stdout.isatty():
        print(*screen(snapshot(shared), 80, 199), sep="\n")
    while given.command == "top" and sys.stdout.isatty():
        size = os.get_terminal_size()
        lines = screen(snapshot(shared), size.columns, size.lines - 1)
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
