"""Everything that the lab waits for has a limit and a line of progress: programs, the engine, another run."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from stampede import interruption
from stampede.causes import NO_ADDRESS, cause, unreached
from stampede.docker import commands
from stampede.docker.client import HERE, DockerError, together
from stampede.docker.commands import meaning_of, run_command
from stampede.errors import LabError
from stampede.experiment.file import load_experiment
from stampede.paths import SERVERS
from stampede.run import machine_lock
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest
from stampede.service import build
from stampede.service.layer import Layer
from tests.conftest import PATIENCE_S, wait_until
from tests.told import Told


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds that has passed for the lab while it runs a program: it stands until a test sets it."""
    now = [0.0]
    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def build_tower(
    script: str, say: Callable[[str], None] = lambda _: None, meanwhile: Callable[[], None] = lambda: None
) -> None:  # fmt: skip
    run_command(["sh", "-c", script], "building a tower", "No tower.", say, meanwhile=meanwhile)


def stays(tmp_path: Path, trap: str = "") -> str:
    """Return a program that says two lines, notes that it has, and stays until there is a file ``go``."""
    said = f"{trap}echo step 1; echo step 2; touch {tmp_path}/said"
    return f"{said}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"


def test_a_program_that_takes_long_says_what_it_does_and_its_last_line(tmp_path: Path, clock: list[float]) -> None:
    said: list[str] = []

    def half_a_minute() -> None:
        wait_until((tmp_path / "said").exists)
        clock[0] = 31

    def say(text: str) -> None:
        said.append(text)
        (tmp_path / "go").touch()

    build_tower(stays(tmp_path), say, half_a_minute)

    assert said == ["Still building a tower after 31 s; its last line: step 2"]


def test_a_program_that_was_not_looked_at_for_long_says_once_that_it_still_runs(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """While the call beside it took its time, nothing was said."""
    said: list[str] = []
    waited: list[float] = []

    class Program:
        def wait(self, within_s: float) -> int:
            waited.append(within_s)
            if len(waited) < 3:
                raise subprocess.TimeoutExpired("sh", within_s)
            return 0

    monkeypatch.setattr(commands, "program", lambda *_, **__: nullcontext(Program()))

    def long() -> None:
        clock[0] = 100

    build_tower(":", said.append, long)

    assert said == ["Still building a tower after 100 s"]
    assert waited == [0.1, 60, 60]


def test_a_program_that_does_not_end_is_ended_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: list[float]
) -> None:
    """It ignores the first signal. The test would not end if the program stayed."""
    monkeypatch.setattr(interruption, "ENDS_WITHIN_S", 0.3)

    def an_hour() -> None:
        wait_until((tmp_path / "said").exists)
        clock[0] = 3600

    with pytest.raises(LabError) as caught:
        build_tower(stays(tmp_path, "trap '' TERM; "), meanwhile=an_hour)

    assert caught.value.message == "No tower."
    assert "did not end within 60 min:\nstep 1\nstep 2" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", ("ended with 3:", "It printed nothing.")),
        ("kill -ILL $$", ("instruction that this processor lacks", "x86-64-v3")),
        ("exit 132", ("instruction that this processor lacks", "x86-64-v3")),
        ("exit 137", ("ended with 137", "killed", "memory")),
        ("exit 139", ("SIGSEGV",)),
    ],
)
def test_a_program_that_fails_says_what_its_exit_code_means(script: str, words: tuple[str, ...]) -> None:
    with pytest.raises(LabError) as caught:
        build_tower(script)

    assert [word for word in words if word not in caught.value.hint] == []
    assert meaning_of(1) == ""


LOADED = {
    "threads": "import threading, time\nfor _ in range(2): threading.Thread(target=time.sleep, args=(1e6,)).start()\n",
    "signals": "import signal, atexit, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "atexit.register(time.sleep, 1e6)\n",
    "threads are few, or gevent cannot patch modules": "import threading\nassert threading.active_count() == 1\n",
    "streams": "import os, sys\nfor one in (sys.stdout, sys.stderr): one.close()\nos.close(1), os.close(2)\n",
}
APP = "def app(environ, start_response): ...\n"


def loaded(
    tmp_path: Path, source: str, *asks: str, before: str = "", environment: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Load an application as the container does that checks it, and ask it."""
    (tmp_path / "application").mkdir(exist_ok=True)
    (tmp_path / "application" / "shop.py").write_text(source)
    (tmp_path / "start.json").write_text(json.dumps({"folder": "", "environment": environment or {}}))
    for name in ("user-service/stampede_own.py", "app/counters.py"):
        copy = tmp_path / name.rpartition("/")[2].replace("counters", "stampede_counters")
        copy.write_bytes((SERVERS / name).read_bytes())
    variables = os.environ | {"LAB_FOLDER": str(tmp_path / "application"), "LAB_SRV": str(tmp_path), "PYTHONPATH": ""}
    how = json.dumps({"callable": "shop:app", "folder": "", "imports": []})
    words = [sys.executable, "-c", before + build.program_text("load.py"), "60", NO_ADDRESS, how, *asks]
    return subprocess.run(
        words, env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_modules_are_also_found_in_the_folders_of_pythonpath(tmp_path: Path) -> None:
    """A relative path starts at the application's folder; programs that the application starts have the same."""
    (tmp_path / "application" / "src").mkdir(parents=True)
    (tmp_path / "application" / "src" / "config.py").write_text("")
    source = "import config, os\nprint(os.environ['PYTHONPATH'])\n"

    done = loaded(tmp_path, source + APP, environment={"PYTHONPATH": "src"})

    assert (done.returncode, done.stderr, done.stdout.strip()) == (0, "", str(tmp_path / "application" / "src"))
    assert "No module named 'config'" in loaded(tmp_path, source + APP).stderr


@pytest.mark.parametrize("kind", LOADED)
def test_an_application_whose_process_does_not_end_by_itself_can_be_loaded(tmp_path: Path, kind: str) -> None:
    done = loaded(tmp_path, LOADED[kind] + APP)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (LOADED["threads"] + "raise KeyError('SHOP_KEY')\n", "KeyError: 'SHOP_KEY'"),
        (LOADED["streams"] + "raise KeyError('SHOP_KEY')\n", "KeyError: 'SHOP_KEY'"),
        ("import sys\nsys.exit('no database')\n", "no database"),
        ("import sys\nsys.exit(0)\n", "sys.exit(0)"),
    ],
)
def test_an_application_that_cannot_be_loaded_says_why_and_leaves(tmp_path: Path, source: str, said: str) -> None:
    done = loaded(tmp_path, source)

    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]


TIME_PASSES = """\
import faulthandler
later, armed = faulthandler.dump_traceback_later, {}
faulthandler.dump_traceback_later = lambda within_s, **how: armed.update(how)
"""
"""What an application calls as ``__main__.later(0.1, **__main__.armed)`` when its time is up."""
WAITS = """\
import signal, time
assert 0 < signal.setitimer(signal.ITIMER_REAL, 0.1)[0] <= 60
while True:
    time.sleep(0.05)  # until the flags are there
"""
BLOCKS = """\
import __main__, ctypes, signal
signal.signal(signal.SIGALRM, signal.SIG_IGN)
__main__.later(0.1, **__main__.armed)
ctypes.PyDLL(None).sleep(1000)
"""
"""It holds the interpreter lock, so no function of Python can say anything."""


@pytest.mark.parametrize(
    ("source", "before", "where", "why"),
    [(WAITS, "", "time.sleep(0.05)  # until the flags are there", "It was not loaded within 60 s"),
     (BLOCKS, TIME_PASSES, 'shop.py", line 4 in <module>', "Timeout (")],
    ids=["in Python", "in C"],
)  # fmt: skip
def test_an_application_that_is_never_loaded_says_what_it_was_doing(
    tmp_path: Path, source: str, before: str, where: str, why: str
) -> None:
    """The application itself lets the rest of its minute pass: however slow a machine is, it has got that far."""
    done = loaded(tmp_path, source, before=before)

    assert done.returncode == 1
    assert where in done.stderr
    assert cause(done.stderr).startswith(why)


def test_a_host_without_an_address_is_named(tmp_path: Path) -> None:
    """The exception does not name the host, and the traceback's source names it only by chance."""
    done = loaded(tmp_path, "import socket\nhost = 'db.' + 'invalid'\nsocket.create_connection((host, 5432))\n")

    assert done.returncode == 1
    assert unreached(done.stderr) == "db.invalid"
    assert cause(done.stderr).startswith("socket.gaierror: ")


FROZEN = """\
#!/bin/sh
echo "$*" >> {folder}/calls
[ -e {folder}/frozen ] || exit 0
sleep 1000 &
while [ -e {folder}/frozen ]; do sleep 0.1; done
kill $!
"""


@pytest.fixture
def frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a client of an engine on the PATH that hangs as long as a file is there, and return its folder."""
    (tmp_path / "docker").write_text(FROZEN.format(folder=tmp_path))
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "frozen").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def clients(folder: Path) -> list[int]:
    """Return the processes that run with this folder first on their PATH: clients, and what these have started."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.environ().get("PATH", "").startswith(f"{folder}{os.pathsep}"):
                found.append(each.pid)
    return found


@pytest.mark.parametrize("ask", [
    lambda: HERE.run("version", within_s=0.3),
    lambda: asyncio.run(HERE.call("version", within_s=0.3)),
], ids=["of the lab", "of a trial"])  # fmt: skip
def test_an_engine_that_is_frozen_ends_every_call_with_a_reason(ask: Callable[[], object], frozen: Path) -> None:
    """What a call has started ends, too."""
    with pytest.raises(DockerError) as caught:
        ask()

    assert caught.value.exit_code is None
    assert str(caught.value) == "it has not answered for 0 s: is it paused, or is its machine?"
    wait_until(lambda: not clients(frozen))


def test_a_call_of_a_trial_that_is_cancelled_ends_its_client(frozen: Path) -> None:
    async def cancel() -> None:
        asking = asyncio.ensure_future(HERE.call("version"))
        while not (frozen / "calls").exists():
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()

    asyncio.run(cancel())

    wait_until(lambda: not clients(frozen))


def test_calls_have_a_session_of_their_own(frozen: Path) -> None:
    """Ctrl-C in a terminal asks the lab to stop, which ends its trials in good order; it does not end their calls."""
    (frozen / "docker").write_text("#!/bin/sh\nps -o sid= -p $$\n")

    assert int(HERE.run("version")) != os.getsid(0) != int(asyncio.run(HERE.call("version")))


def test_what_a_client_says_last_is_the_reason(frozen: Path) -> None:
    (frozen / "docker").write_text("#!/bin/sh\necho an answer\necho 'a story\nthe end' >&2\nexit 3\n")

    with pytest.raises(DockerError) as caught:
        HERE.run("version")

    assert (str(caught.value), caught.value.exit_code) == ("the end", 3)
    assert HERE.told("version") == ""


def test_a_client_that_is_missing_is_an_error_of_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    for ask in (lambda: HERE.run("version"), lambda: asyncio.run(HERE.call("version"))):
        with pytest.raises(DockerError, match="client cannot be started: No such file"):
            ask()


def test_all_calls_have_ended_before_an_error_of_one_of_them_is_raised() -> None:
    ended: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.05)
        ended.append("slow")

    async def broken() -> None:
        raise DockerError("no")

    with pytest.raises(DockerError):
        asyncio.run(together([broken(), slow()]))

    assert ended == ["slow"]


def test_a_container_that_checks_an_application_is_removed_if_the_check_is_given_up(
    frozen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ending the client alone would leave the container running. The time is up when the client has begun."""
    script = f"#!/bin/sh\necho $* >> {frozen}/calls\ncase $1 in run) exec sleep 1000 ;; esac\n"
    (frozen / "docker").write_text(script)
    monkeypatch.setattr(commands, "FIRST_WORD_S", 0.1)
    time_of_client = SimpleNamespace(monotonic=lambda: 1000 * (frozen / "calls").exists())
    monkeypatch.setattr(commands, "time", time_of_client)
    monkeypatch.setattr(interruption, "ENDS_WITHIN_S", 0.2)

    with pytest.raises(LabError, match="Your application cannot be loaded"):
        build.load_once("shop:abc", Layer(frozen, "tag"), {"callable": "shop:app"}, lambda _: None)

    run, *_, removed = (frozen / "calls").read_text().splitlines()
    name = run.split("--name ")[1].split()[0]
    assert removed == f"rm --force {name}"
    assert "--label stampede.owner=" in run


@pytest.mark.parametrize("before", ["", "python migrate.py"])
def test_an_application_that_needs_others_to_be_loaded_is_not_asked(
    frozen: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """It is started later, with the others. What it tells has no secrets."""
    (frozen / "docker").write_text("#!/bin/sh\necho 'no answer from hush-hush' >&2\nexit 1\n")
    monkeypatch.setattr(build, "build_own_image", lambda *_: "shop:abc")
    layer = Layer(frozen, "tag", {"TOKEN": "hush-hush"}, before=before, loaded={"callable": "shop:app"})

    with nullcontext() if before else pytest.raises(LabError, match=r"cannot be loaded: no answer from \$TOKEN"):
        answers = build.ask_application(layer, lambda _: None)
        assert answers.problem == "it cannot be loaded alone: Your application cannot be loaded: no answer from $TOKEN"


def test_what_is_said_while_an_application_is_built_has_no_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last line of a program that takes long is on the terminal, and in the lock that all users can read."""
    said: list[str] = []
    last = "Still loading your application after 30 s; its last line: connecting with hush-hush"
    monkeypatch.setattr(build, "build_own_image", lambda *_: "shop:abc")
    monkeypatch.setattr(build, "load_once", lambda _name, _layer, _factors, say: say(last))
    layer = Layer(tmp_path, "tag", {"TOKEN": "hush-hush"}, image="shop:1", loaded={"callable": "shop:app"})

    build.build_layer(layer, "own", {}, said.append)

    assert said == [last.replace("hush-hush", "$TOKEN")]


def test_who_waits_for_another_run_is_told_who_it_is_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(machine_lock, "TELL_AGAIN_S", 0.3)
    monkeypatch.setattr(machine_lock, "LOOK_AGAIN_S", 0.05)
    said: list[str] = []

    def second() -> None:
        with machine_lock.machine_lock(said.append):
            said.append("my turn")

    with machine_lock.machine_lock(said.append, "make try SERVICE=shop.yaml") as note:
        note("load")
        waiting = threading.Thread(target=second)
        waiting.start()
        wait_until(lambda: said)
        note("stopping the servers")
        wait_until(lambda: "now: stopping the servers" in said[-1])
    waiting.join(PATIENCE_S)

    for word in (f"process {os.getpid()}", "since ", "make try SERVICE=shop.yaml", f"kill {os.getpid()}"):
        assert word in said[0]
    assert "now: load" in said[0]
    assert said[-1] == "my turn"


def test_the_machine_is_locked_from_the_plan_to_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that went away while the lab waited is named. Whatever ends a run, the next one can start."""

    def is_locked() -> bool:
        with lock.open() as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        return True

    def step(*_: object) -> None:
        seen.append(is_locked())

    def run_plan(_request: object, _plan: object, _say: object, progress: Callable[..., None], _end: object) -> None:
        progress("load", 1, 2)
        seen.append((is_locked(), lock.read_text().splitlines()[2:]))
        raise LabError("The disk is full.")

    def gone(_: object) -> None:
        raise DockerError("no route to host")

    seen: list[object] = []
    lock = tmp_path / "lock"
    monkeypatch.setattr(machine_lock, "LOCK", lock)
    monkeypatch.setattr("stampede.docker.engine.memory_budgets", step)
    monkeypatch.setattr("stampede.docker.doctor.make_ready", step)
    monkeypatch.setattr("stampede.run.run.run_plan", run_plan)
    experiment = load_experiment("ten-at-once")
    request = RunRequest("ten-at-once", experiment, MeasureOptions(jobs=2), tmp_path, "stampede run ten-at-once")

    with pytest.raises(LabError, match="The disk is full"):
        measure_quietly(request)
    assert seen == [True, True, (True, ["stampede run ten-at-once", "load"])]
    assert not is_locked()
    with pytest.raises(LabError, match="The engine of bench does not answer"):
        measure_quietly(replace(request, machines=(Told("bench", shares_files=False, answers=gone),)))
    assert not is_locked()
