"""What the tests share: the lab's commands as a user runs them, and copies of the lab for tests to break."""

import gc
import io
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

import hypothesis
import psutil
import pytest
import typer
from python_on_whales import DockerClient
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from stampede import cli, terminal
from stampede.docker.containers import OWNER_LABEL
from stampede.paths import ROOT
from stampede.pipeline import derive
from stampede.records.checksums import seal
from stampede.run.machine_lock import LOCK
from tests.boxes import BoxOf, boxes
from tests.synthetic import Request, make_run

PARTS = ("stampede", "experiments", "lessons", "k6", "clients", "servers", "idle-thread", "probe", "nginx", "haproxy",
         "mariadb", "tools", "docker-compose.yml", ".dockerignore")  # fmt: skip
hypothesis.settings.register_profile("patient", deadline=None)  # no test asserts how fast this machine is
hypothesis.settings.load_profile("patient")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores Ctrl-C
PATIENCE_S = 120
FAST = (
    "most: 1}}\n      heavy: {users: 2, takes_s: 10}",
    "most: 0.1}}\n      heavy: {users: 2, takes_s: 0.2}",
)
BEGAN = "STAMPEDE_TESTS_BEGAN"
"""The variable of the time when the tests began; pytest's worker processes inherit the variable."""
os.environ.setdefault(BEGAN, datetime.now(UTC).isoformat())
IN_MEMORY = Path("/dev/shm")  # pytest makes a folder of its own in it
if IN_MEMORY.exists() and shutil.disk_usage(IN_MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))  # files that are gone after the tests need no disk


T = TypeVar("T")
WITH_ENGINE = "engine", "containers"
"""The folders of tests that start containers, in the order of running: copies of the lab then build broken images."""


class ByModule(LoadFileScheduling):
    """Give each worker a module at a time, and all modules that start containers to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        return "engine" if Path(module).parent.name in WITH_ENGINE else module


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByModule:
    """Tell xdist which tests follow each other."""
    return ByModule(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the name of its folder, and put long modules first, so that none of them begins last.

    pyproject.toml says what the folders are for. Tests that start containers come before all others.
    """
    for item in items:
        item.add_marker(item.path.parent.name)
    sizes = {path: path.stat().st_size for path in {item.path for item in items}}
    order = {folder: place for place, folder in enumerate(reversed(WITH_ENGINE), start=1)}
    items.sort(key=lambda item: (order.get(item.path.parent.name, 0), sizes[item.path]), reverse=True)


def pytest_collection_finish() -> None:
    """Look for garbage less often: the search took a seventh of the tests' time."""
    gc.set_threshold(5_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the processors to tests that measure, if there are any: tests that need no container give way."""
    measures = item.session.items[0].path.parent.name in WITH_ENGINE  # they are the first
    if measures and item.path.parent.name in ("quick", "whole") and os.nice(0) == 0:
        os.nice(10)


APP = typer.main.get_command(cli.app)
COMMANDS = APP.commands  # type: ignore[attr-defined]  # it is a group
NARROW = {"COLUMNS": "80", "NO_COLOR": "1"}


def started_in(module: str) -> set[psutil.Process]:
    """Return the children of this process, and the processes that a module's children have left behind.

    But for multiprocessing's tracker, which lives as long as the process whose first pool started it.
    """
    found = set(psutil.Process().children(recursive=True))
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            of = each.environ()
            if of.get(BEGAN) == os.environ[BEGAN] and of.get("PYTEST_CURRENT_TEST", "").startswith(f"{module}::"):
                found.add(each)
    alive = {each for each in found if each.is_running() and each.status() != psutil.STATUS_ZOMBIE}
    return {each for each in alive if "resource_tracker" not in " ".join(each.cmdline())}


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module that leaves something behind which a later module in the same process would meet."""
    module = request.node.nodeid
    before, folder, variables = started_in(module), Path.cwd(), dict(os.environ)
    yield
    _, alive = psutil.wait_procs(started_in(module) - before, timeout=10)  # what was just ended may take a moment
    assert [each.cmdline() for each in alive] == []
    assert Path.cwd() == folder
    assert dict(os.environ) | {"PYTEST_CURRENT_TEST": ""} == variables | {"PYTEST_CURRENT_TEST": ""}


@dataclass
class Lab:
    """The lab in the folder ``root`` with its results in another folder. Commands run as separate processes."""

    root: Path
    results: Path
    environment: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    started: "list[subprocess.Popen[str]]" = field(default_factory=list, repr=False)
    machines: str = ""

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command, and return the process, from which a test can read the output."""
        environment = {"PYTHONPATH": str(self.root)} | NARROW | self.environment
        process = subprocess.Popen(
            [*self.before, sys.executable, "-m", "stampede", *self._with_results(*arguments)],
            cwd=self.root, env=os.environ | environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in this process, which takes a tenth of the time. A copy of the lab cannot do so."""
        assert self.root == ROOT
        assert not self.before
        out, err = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, NARROW | self.environment),
            patch.object(sys, "argv", ["stampede", *self._with_results(*arguments)]),
            patch.object(cli, "app", APP),  # Typer would build all commands again
            patch.object(cli, "heed_signals"),
            patch.object(terminal.out, "_width", 80),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            cli.main()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(arguments, ended.value.code, out.getvalue(), err.getvalue())

    def _with_results(self, *arguments: str) -> list[str]:
        """Return a command with this lab's results. A run measures each variant once unless the command says more."""
        if not arguments or arguments[0] not in COMMANDS:
            return [*arguments]
        once = ["--trials", "1"] if arguments[0] in ("run", "watch") and "--until" not in arguments else []
        options = {option for parameter in COMMANDS[arguments[0]].params for option in parameter.opts}
        results = ["--results", str(self.results)] if "--results" in options else []
        machines = ["--machines", self.machines] if self.machines and "--machines" in options else []
        return [arguments[0], *results, *once, *machines, *arguments[1:]]

    def end(self) -> None:
        """Interrupt the commands that a failed test left running, so that they disturb no other test."""
        for process in self.started:
            if process.poll() is None:
                finish(process, signal.SIGINT)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        return self.run_for(PATIENCE_S, *arguments)

    def run_for(self, seconds: int, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, and fail the test if the command takes more than ``seconds``."""
        return subprocess.CompletedProcess(arguments, *finish(self.start(*arguments), patience_s=seconds))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in a file of this copy. The text must be there."""
        assert self.root != ROOT
        text = (self.root / path).read_text()
        assert old in text
        (self.root / path).write_text(text.replace(old, new))

    def start_loads_at_once(self) -> None:
        """Make this copy start loads on a busy machine, too, and not wait to find out whether it stays busy."""
        self.edit("stampede/docker/machine_usage.py", "QUIET_WITHIN_S = 10", "QUIET_WITHIN_S = 0")
        self.edit("stampede/docker/machine_usage.py", "SOON_S = 2", "SOON_S = 0")

    def draw_nothing(self) -> None:
        """Make this copy write reports whose pictures are empty."""
        self.edit("stampede/report/figures/drawing.py", "vl_convert.vegalite_to_svg(drawn)", '"<svg></svg>"')

    def start_loads_apart(self) -> None:
        """Make this copy start each load when its load generator is ready, and not all loads at the same time."""
        self.start_loads_at_once()
        self.edit(
            "stampede/plan/timing.py",
            "\nGENERATOR_UP_S, FURTHER_GENERATOR_UP_S = 0.5, 0.3",
            "\nGENERATOR_UP_S, FURTHER_GENERATOR_UP_S = 0.1, 0.1",
        )

    def predict_roughly(self) -> None:
        """Make this copy simulate each variant twice, because sixty times take long and no test reads the figures."""
        edit = "SIMULATED, LEAST_SIMULATED = {}, {}"
        self.edit("stampede/predict/prediction.py", edit.format(60, 10), edit.format(2, 1))

    def hurry(self) -> None:
        """Make this copy start loads at once, predict roughly and draw nothing."""
        self.start_loads_at_once()
        self.predict_roughly()
        self.draw_nothing()

    def latest(self, experiment: str = "heavy-mix") -> Path:
        """Return the folder of the last run."""
        return (self.results / experiment / "latest").resolve()

    def leftovers(self) -> list[Path]:
        """Return the files whose names mark them as half-written."""
        return [path for path in self.results.rglob("*") if ".part" in path.name or path.name.startswith(".")]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """The lab itself, with a results folder for this test."""
    one = Lab(ROOT, tmp_path / "results")
    yield one
    one.end()


@pytest.fixture
def copied_lab(tmp_path: Path) -> Iterator[Lab]:
    """A copy of the lab, which the test may break."""
    one = copy_lab(tmp_path)
    yield one
    one.end()


@pytest.fixture
def fast_lab(copied_lab: Lab) -> Lab:
    """A copy of the lab that waits for nothing, neither heavy requests nor a quiet machine, and draws nothing."""
    copied_lab.edit("experiments/heavy-mix.yaml", *FAST)
    copied_lab.hurry()
    return copied_lab


@pytest.fixture(scope="session")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was measured, sealed and derived, with its pictures."""
    requests = [Request(overhead_ms=n) for n in range(1, 101)]
    run = make_run(tmp_path_factory.mktemp("derived") / "run", {"one": requests, "two": requests})
    seal(run)
    derive(run)
    return run


@pytest.fixture
def measured(lab: Lab, derived: Path) -> Path:
    """A copy of the run among the lab's results, to be changed."""
    run = shutil.copytree(derived, lab.results / "made-up" / "20260102T030405Z")
    (run.parent / "latest").symlink_to(run.name)
    return run


@pytest.fixture(scope="module")
def without_pictures() -> Iterator[None]:
    """Leave the figures out of reports, because drawing them takes longer than all other parts."""
    with patch("stampede.report.html.pictures", lambda *_: []):
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Make the charts of reports, but do not draw them."""
    with patch("stampede.report.figures.svg", lambda _: "<svg></svg>"):
        yield


def copy_lab(folder: Path) -> Lab:
    """Copy the lab into a folder, where a test may break it, with what Python and Numba have compiled of it."""
    for part in PARTS:
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, folder / "copy" / part)
    return Lab(folder / "copy", folder / "results")


def wait_until(find: Callable[[], T | None], patience_s: float = PATIENCE_S, every_s: float = 0.01) -> T:
    """Look again until something is there or is true, but not for ever, and return what was found."""
    deadline = time.monotonic() + patience_s
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(every_s)
    return found


def on_host(name: str) -> list[str]:
    """Return the beginning of a command that runs under another host name; empty without root, which this needs."""
    command = ["unshare", "--uts", "sh", "-c", f'hostname {name} && exec "$@"', "sh"]
    works = shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if works and works.returncode == 0 else []


@pytest.fixture(scope="module")
def own_images() -> None:
    """Build the images from the lab's own files, as a broken copy may have built other images of the same names."""
    subprocess.run([sys.executable, "-m", "stampede", "setup"], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="module")
def box_of(own_images: None) -> Iterator[BoxOf]:  # noqa: ARG001  # they must be there
    """A container for each image that a test asks for."""
    with boxes() as one:
        yield one


def lab_objects() -> list[str]:
    """Return the names of the lab's containers and networks that somebody created since the tests began."""
    client = DockerClient()
    began = datetime.fromisoformat(os.environ[BEGAN])
    containers = client.container.list(all=True, filters=[("label", OWNER_LABEL)])
    networks = client.network.list(filters=[("label", OWNER_LABEL)])
    found = [(one.name, one.created) for one in containers] + [(one.name, one.created) for one in networks]
    return [name for name, created in found if created >= began]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fail the test if it leaves a container or a network of the lab behind."""
    assert lab_objects() == []
    yield
    left = lab_objects()
    assert left == []


def wait_for_line(process: "subprocess.Popen[str]", start: str) -> list[str]:
    """Read a process's stderr until a line begins with ``start``, and return the lines."""
    assert process.stderr
    lines: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        line = process.stderr.readline()
        lines.append(line)
        if line.startswith(start):
            return lines
        if not line:
            break
    process.kill()
    pytest.fail(f"no line began with {start!r}:\n{''.join(lines)}")


def is_at_step(process: int, step: str) -> bool:
    """Whether a process measures and is at a step, as it tells those who wait for its lock."""
    noted = LOCK.read_text().splitlines() if LOCK.exists() else []
    return noted[:1] == [str(process)] and noted[-1] == step


def wait_for_step(process: "subprocess.Popen[str]", step: str) -> None:
    """Wait until a process that measures is at a step."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if is_at_step(process.pid, step):
            return
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the lab was never at {step!r}:\n{process.communicate()[1]}")


def finish(
    process: "subprocess.Popen[str]", with_signal: signal.Signals | None = None, patience_s: int = PATIENCE_S
) -> "tuple[int, str, str]":
    """Send a signal to a process if there is one, wait for its end, and return exit code and remaining output."""
    if with_signal:
        process.send_signal(with_signal)
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        pytest.fail(f"{process.args!r} took more than {patience_s} s:\n{out}\n{err}")
    return process.returncode, out, err
