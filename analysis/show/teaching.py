"""Where requests wait in each step of the lesson: the pictures of docs/teaching.md.

    python -m analysis.show.teaching docs

The pictures are drawings, not measurements. Each has a white ground of its own, so it reads the same on a light and on
a dark page, and its text is text.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Literal

from analysis.folder import write_whole

Kind = Literal["quick", "slow", "waits", "in vain", "free"]
"""A request at work, a slow one, one that waits, and one that waits beside a free thread; or a free thread."""
Meaning = tuple[Kind | Literal["lock", "share"], str]
"""A sign, and what it means."""
Picture = Iterable[str]

WIDTH, HEIGHT = 1280, 640
INK, PALE, LINE, GROUND = "#1c1c1c", "#5a5a5a", "#8a8a8a", "#f4f6f8"
QUICK, SLOW, IN_VAIN, QUEUE = "#0072b2", "#e69f00", "#c02020", "#fdeecf"
LOCK = "#6b4e9b"
_STEP = 40
"""From one thread, or one waiting request, to the next."""
_HIGH = 50
"""Workers that are not so high have small threads."""


def text(
    x: float, y: float, says: str, size: int = 22, anchor: str = "middle", fill: str = INK, *, bold: bool = False
) -> str:
    """Draw one line of text."""
    weight = ' font-weight="700"' if bold else ""
    font = f'font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}'
    return f'<text x="{x:g}" y="{y:g}" {font}>{escape(says)}</text>'


def box(x: float, y: float, wide: float, high: float, fill: str = GROUND, *, dashed: bool = False) -> str:
    """Draw a rectangle: a process, a socket or a queue."""
    dashes = ' stroke-dasharray="6 5"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}" rx="8" fill="{fill}" '
        f'stroke="{LINE}" stroke-width="2"{dashes}/>'
    )


def arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    """Draw an arrow on the way of requests."""
    return f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{PALE}" stroke-width="2.5" marker-end="url(#to)"/>'


def request(x: float, y: float, kind: Kind) -> str:
    """Draw a request. Its shape says what its colour says."""
    if kind == "slow":
        return (
            f'<rect x="{x - 14:g}" y="{y - 14:g}" width="28" height="28" rx="3" fill="{SLOW}" stroke="{INK}" '
            'stroke-width="1.5"/>'
        )
    if kind == "waits":
        return f'<circle cx="{x:g}" cy="{y:g}" r="12" fill="#ffffff" stroke="{QUICK}" stroke-width="4"/>'
    circle = f'<circle cx="{x:g}" cy="{y:g}" r="14" fill="{IN_VAIN if kind == "in vain" else QUICK}"/>'
    return circle + (text(x, y + 8, "!", 22, fill="#ffffff", bold=True) if kind == "in vain" else "")


def thread(x: float, y: float, kind: Kind) -> str:
    """Draw a thread with the request on which it works, or without one."""
    frame = box(x - 18, y - 18, 36, 36, "#ffffff", dashed=kind == "free")
    return frame + ("" if kind == "free" else request(x, y, kind))


def row(
    x: float, y: float, kinds: Sequence[Kind], draw: Callable[[float, float, Kind], str], wrap: int = 99
) -> Picture:
    """Draw threads or waiting requests side by side, in lines of at most ``wrap``."""
    for number, kind in enumerate(kinds):
        yield draw(x + number % wrap * _STEP, y + number // wrap * _STEP, kind)


def lock(x: float, y: float) -> str:
    """Draw an interpreter lock."""
    return (
        f'<path d="M{x - 8:g} {y - 4:g}v-7a8 8 0 0 1 16 0v7" stroke="{LOCK}" stroke-width="4"/>'
        f'<rect x="{x - 13:g}" y="{y - 5:g}" width="26" height="20" rx="4" fill="{LOCK}"/>'
    )


def workers(
    x: float, name: str, threads: Sequence[Sequence[Kind]], queues: Sequence[Sequence[Kind]], shares: Sequence[int] = ()
) -> Picture:
    """Draw workers below each other: for each its queue and its threads, and how many of ten requests it served."""
    high = min(84, 336 // len(threads))
    for number, (busy, waiting) in enumerate(zip(threads, queues, strict=True)):
        y = 136 + number * high
        middle = y + high / 2 - 4
        wide = 330 if shares else 400
        yield box(x, y, wide, high - 8)
        yield text(x + 12, middle + 7, f"{name} {number + 1}", 20, "start")
        if waiting:
            yield box(x + 122, middle - 26, 24 + len(waiting) * _STEP, 52, QUEUE)
        yield from row(x + 154, middle, waiting, request)
        yield f'<g transform="translate({x + wide - 38:g} {middle:g}) scale({1 if high > _HIGH else 0.75})">'
        yield from row((1 - len(busy)) * _STEP, 0, busy, thread)
        yield "</g>"
        if shares:
            yield f'<rect x="{x + 346:g}" y="{middle - 11:g}" width="{shares[number]}" height="22" fill="{PALE}"/>'


def way(x: float, label: str, rows: int, first: int = 0) -> Picture:
    """Draw the place from which requests go to ``rows`` workers, with an arrow to each from the ``first`` on."""
    middle, high = 300, min(84, 336 // rows)
    yield box(x, middle - 34, 110, 68, "#ffffff")
    yield text(x + 55, middle + 7, label, 20)
    for number in range(first, rows):
        yield arrow(x + 110, middle, x + 154, middle + (number - (rows - 1) / 2) * high)


def panel(x: float, wide: float, heading: str, verdict: str) -> Picture:
    """Draw what stands above and below a drawing."""
    yield text(x + wide / 2, 112, heading, 24, bold=True)
    yield text(x + wide / 2, 526, verdict, 24)


def key(kinds: Sequence[Meaning]) -> Picture:
    """Draw what the signs mean, at the bottom."""
    x = 40.0
    yield f'<path d="M40 560H{WIDTH - 40}" stroke="{LINE}"/>'
    for kind, says in kinds:
        if kind == "lock":
            yield lock(x + 14, 598)
        elif kind == "share":
            yield f'<rect x="{x:g}" y="590" width="32" height="20" fill="{PALE}"/>'
        else:
            yield thread(x + 16, 600, kind) if kind == "free" else request(x + 16, 600, kind)
        yield text(x + 42, 607, says, 20, "start")
        x += 80 + len(says) * 10.2


_AT_WORK: Meaning = ("quick", "at work")
_SLOW: Meaning = ("slow", "slow, at work")
_FREE: Meaning = ("free", "a free thread")
_WAITS: Meaning = ("waits", "waits")
_IN_VAIN: Meaning = ("in vain", "waits beside a free thread")


def places() -> Picture:
    """Draw all places where a request can wait."""
    for x, name in ((40, "balancer"), (300, "socket")):
        yield box(x, 180, 190, 150)
        yield text(x + 95, 216, name, 24, bold=True)
        yield from row(x + 95 - _STEP, 276, ["waits"] * 3, request)
        yield arrow(x + 190, 255, x + 254, 255)
    yield box(560, 120, 680, 230)
    yield text(580, 158, "worker (a process)", 24, "start", bold=True)
    yield box(580, 180, 190, 150, QUEUE)
    yield text(675, 216, "its queue", 22)
    yield from row(675 - _STEP, 276, ["waits"] * 3, request)
    yield arrow(770, 255, 826, 255)
    yield box(832, 180, 150, 150, "#ffffff")
    yield text(907, 216, "threads", 22)
    yield from row(907 - _STEP / 2, 276, ["quick", "quick"], thread)
    yield arrow(982, 255, 1038, 255)
    yield box(1044, 180, 176, 150, QUEUE)
    yield text(1132, 216, "lock, or loop", 22)
    yield lock(1092, 276)
    yield from row(1132, 276, ["waits", "waits"], request)
    for x, lines in (
        (135, ("if it has", "a limit", "not in the lesson")),
        (395, ("if busy workers", "accept nothing", "steps 3 and 6")),
        (675, ("if busy workers", "accept", "steps 1, 2 and 3")),
        (1132, ("if requests", "compute", "steps 4 and 5")),
    ):
        for number, says in enumerate(lines):
            yield text(x, 396 + number * 34, says, 22, fill=PALE if says == lines[-1] else INK)
    yield f'<path d="M40 510H{WIDTH - 40}" stroke="{LINE}"/>'
    yield text(WIDTH / 2, 576, "Only a request that waits in front of all workers can go to whichever is free.", 26)


def ten_at_once() -> Picture:
    """Draw ten requests in a worker of one thread, and of ten."""
    for x, threads, waiting, heading, verdict in (
        (40, 1, 9, "one thread", "the last answer comes after ten turns"),
        (660, 10, 0, "ten threads", "all answers come after one turn"),
    ):
        yield from panel(x, 580, heading, verdict)
        yield box(x + 20, 160, 540, 290)
        yield text(x + 40, 196, "worker", 20, "start")
        if waiting:
            yield box(x + 50, 222, 250, 150, QUEUE)
            yield from row(x + 95, 257, ["waits"] * waiting, request, 5)
            yield text(x + 175, 348, "queue in the worker", 20)
            yield arrow(x + 300, 297, x + 396, 297)
        yield from row(x + (430 if waiting else 210), 297 if waiting else 277, ["quick"] * threads, thread, 5)
        yield text(x + (430 if waiting else 290), 348 if waiting else 368, "thread" if waiting else "threads", 20)
    yield from key([_AT_WORK, _WAITS])


def slow_among_quick() -> Picture:
    """Draw the load of heavy-mix in four processes, and in one."""
    yield from panel(40, 580, "four processes of two threads", "two requests wait, and three threads are free")
    yield from way(40, "socket", 4)
    one: list[Kind] = ["quick", "free"]
    yield from workers(200, "worker", [["slow", "slow"], one, one, one], [["in vain", "in vain"], [], [], []])
    yield from panel(660, 580, "one process of eight threads", "seven requests, eight threads: none waits")
    yield from way(660, "socket", 1)
    yield box(820, 220, 400, 160)
    yield text(832, 252, "worker", 20, "start")
    yield from row(970, 280, ["slow", "slow", "quick", "quick", "quick", "quick", "quick", "free"], thread, 4)
    yield from key([_AT_WORK, _SLOW, _IN_VAIN, _FREE])


def even_shares() -> Picture:
    """Draw even shares with a queue, and uneven shares without one."""
    yield from panel(40, 580, "nginx takes turns", "even shares, but requests wait")
    yield from way(40, "nginx", 4)
    one: list[Kind] = ["quick", "free"]
    yield from workers(200, "worker", [["slow", "slow"], one, one, one], [["in vain", "in vain"], [], [], []], [50] * 4)
    yield from panel(660, 580, "eight workers accept only when free", "uneven shares, and no request waits")
    yield from way(660, "socket", 8, first=7)
    busy: list[Kind] = ["quick", "slow", "quick", "quick", "slow", "quick", "quick", "free"]
    yield from workers(820, "worker", [[kind] for kind in busy], [[]] * 8, [58, 12, 50, 40, 8, 28, 20, 10])
    yield from key([_AT_WORK, _SLOW, _IN_VAIN, _FREE, ("share", "requests served")])


def interpreter_lock() -> Picture:
    """Draw four requests that compute in one process, and in four."""
    yield from panel(40, 580, "one process of four threads", "one request computes, three wait for the lock")
    yield box(60, 190, 540, 220)
    yield text(80, 226, "process", 20, "start")
    yield lock(212, 290)
    yield thread(256, 290, "quick")
    yield from row(346, 290, ["waits"] * 3, lambda x, y, kind: thread(346 + (x - 346) * 1.5, y, kind))
    yield text(330, 372, "four threads, one interpreter lock", 20)
    yield from panel(660, 580, "four processes of one thread", "four requests compute at the same time")
    for number in range(4):
        y = 136 + number * 84
        yield box(760, y, 380, 76)
        yield text(780, y + 45, f"process {number + 1}", 20, "start")
        yield lock(990, y + 38)
        yield thread(1060, y + 38, "quick")
    yield from key([("quick", "computes"), ("waits", "waits for the lock"), ("lock", "an interpreter lock")])


def blocked_loop() -> Picture:
    """Draw an event loop whose requests await something, and one whose request computes."""
    for x, heading, verdict in (
        (40, "requests await something", "ten requests take as long as one"),
        (660, "requests compute", "ten requests take as long as ten in turn"),
    ):
        blocked = x != 40
        yield from panel(x, 580, heading, verdict)
        yield box(x + 20, 160, 540, 290)
        yield text(x + 40, 196, "process", 20, "start")
        yield (
            f'<circle cx="{x + 425}" cy="290" r="62" fill="#ffffff" stroke="{PALE}" stroke-width="5" '
            'stroke-dasharray="84 14"/>'
        )
        yield text(x + 425, 392, "event loop", 20)
        if blocked:
            yield request(x + 425, 290, "quick")
            yield box(x + 50, 222, 250, 150, QUEUE)
            yield from row(x + 95, 257, ["waits"] * 9, request, 5)
            yield text(x + 175, 348, "wait for the loop", 20)
            yield arrow(x + 300, 290, x + 352, 290)
        else:
            yield box(x + 50, 222, 250, 150, "#ffffff", dashed=True)
            yield from row(x + 95, 257, ["quick"] * 10, request, 5)
            yield text(x + 175, 348, "await something", 20)
            yield text(x + 425, 297, "free", 20, fill=PALE)
    yield from key([("quick", "under way"), _WAITS])


def cures() -> Picture:
    """Draw three cures, and what each costs."""
    third = 400
    for number, (heading, because, queue, costs) in enumerate(
        (
            ("one process", "no free thread is elsewhere", "the worker", "one lock for all threads"),
            ("worker_connections = threads", "a busy worker accepts nothing", "the socket", "no kept connections"),
            ("least_conn", "nginx counts connections", "a container", "memory, a container each"),
        )
    ):
        x = 40 + number * third
        yield text(x + third / 2, 112, heading, 24, bold=True)
        yield text(x + third / 2, 482, because, 22)
        yield text(x + third / 2, 512, f"if all are busy: queue in {queue}", 20)
        yield text(x + third / 2, 544, f"costs: {costs}", 22, fill=IN_VAIN)
    yield box(100, 196, 280, 160)
    yield text(116, 230, "worker", 20, "start")
    yield from row(180, 270, ["slow", "slow", "quick", "quick", "quick", "quick", "quick", "free"], thread, 4)
    met: list[list[Kind]] = [["slow", "slow"], ["quick", "quick"], ["quick", "quick"], ["quick", "free"]]
    spread: list[list[Kind]] = [["slow", "quick"], ["slow", "quick"], ["quick", "quick"], ["quick", "free"]]
    for x, label, name, busy in ((452, "socket", "worker", met), (852, "nginx", "container", spread)):
        yield box(x, 258, 96, 64, "#ffffff")
        yield text(x + 48, 297, label, 20)
        for number, threads in enumerate(busy):
            y = 136 + number * 80
            yield box(x + 144, y, 222, 72)
            yield text(x + 156, y + 43, f"{name} {number + 1}", 18, "start")
            yield from row(x + 296, y + 36, threads, thread)
            if label == "nginx" or number == len(busy) - 1:
                yield arrow(x + 96, 290, x + 138, y + 36)
    yield from key([_AT_WORK, _SLOW, _FREE])


PICTURES: dict[str, tuple[str, Callable[[], Picture], str]] = {
    "places": (
        "Where can a request wait?",
        places,
        "On its way a request can wait in the balancer, in a socket, in the queue of a worker, and for the lock or the "
        "event loop of a process",
    ),
    "ten-at-once": (
        "1  Ten at once: requests wait for a thread",
        ten_at_once,
        "In a worker of one thread nine of ten requests wait in the worker's queue; in a worker of ten threads all ten "
        "are at work",
    ),
    "slow-among-quick": (
        "2  Two slow among many quick: requests wait in a busy worker",
        slow_among_quick,
        "Two quick requests wait in a worker whose two threads work on slow requests, while three other workers have "
        "free threads; in one process of eight threads no request waits",
    ),
    "even-shares": (
        "3  Even shares are not the goal",
        even_shares,
        "nginx takes turns: all workers serve equally many requests, and two requests wait in a busy worker; eight "
        "workers that accept only when they are free serve unequal shares, and no request waits",
    ),
    "interpreter-lock": (
        "4  One interpreter lock: requests wait although they have a thread",
        interpreter_lock,
        "In one process of four threads one request computes and three wait for the interpreter lock; in four "
        "processes of one thread four requests compute",
    ),
    "blocked-loop": (
        "5  Async that blocks: requests wait for the event loop",
        blocked_loop,
        "If ten requests await something, the event loop is free and all are under way; if they compute, one request "
        "holds the loop and nine wait",
    ),
    "cures": (
        "6  What cures it, and what it costs",
        cures,
        "Three cures: one process with all threads costs one lock for all; as many connections as threads costs kept "
        "connections; least_conn with a container for each worker costs memory",
    ),
}


def drawn(name: str) -> str:
    """Return a picture as SVG."""
    title, draw, described = PICTURES[name]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(described)}" fill="none" '
        'font-family="system-ui, Helvetica, Arial, sans-serif">',
        f'<defs><marker id="to" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{PALE}"/></marker></defs>',
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="16" fill="#ffffff" stroke="#d0d7de" '
        'stroke-width="2"/>',
        text(40, 60, title, 32, "start", bold=True),
    )
    return "\n".join(chain(head, draw(), ("</svg>\n",)))


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    for name in PICTURES:
        write_whole(folder / f"teaching-{name}.svg", drawn(name))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
