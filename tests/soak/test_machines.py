"""Several machines: three engines on this machine, each in namespaces of its own, and what goes wrong with them."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stampede.docker.images import K6
from stampede.paths import TOOLS
from stampede.records.folder import read_run, read_trial, trial_folder
from stampede.records.run import TrialRecord
from tests.conftest import Lab, finish, on_host, wait_for_line, wait_for_step
from tests.measuring import Result, add_experiment
from tests.spoilt import needs_root

pytestmark = needs_root
COUNT = 3
IMAGES = ("debian:trixie-slim", K6, "stampede/gunicorn:27.0.1", "stampede/nginx:trixie", "stampede/client:trixie")
FOLDER = Path("/var/lib/stampede-tests")
CONTEXTS = FOLDER.name
"""The Docker contexts begin with the name of the folder."""
RUN = ("run", "heavy-mix", "--variants", "least-conn", "--duration", "8s")


@dataclass
class Cluster:
    """Engines on this machine that are in one swarm, and the file that describes them."""

    file: Path

    def tool(self, *words: str) -> str:
        """Run tools/engines.sh, and return what it said."""
        command = [str(TOOLS / "engines.sh"), *words, str(FOLDER)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def docker(self, number: int, *words: str) -> str:
        """Ask one of the engines."""
        command = ["docker", "--context", f"{CONTEXTS}-{number}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def left(self) -> list[str]:
        """Return the containers, volumes and networks of the lab on all engines."""
        found = []
        for number in range(1, COUNT + 1):
            for kind in ("container", "volume", "network"):
                asked = ["--all", "--format", "{{.Names}}"] if kind == "container" else ["--format", "{{.Name}}"]
                names = self.docker(number, kind, "ls", *asked).split()
                found += [f"{number}: {one}" for one in names if one.startswith("stampede") or kind != "network"]
        return found

    def heal(self) -> None:
        """Start the engines that do not run, continue those that were stopped, and mend all links."""
        self.tool("up", str(COUNT))


@pytest.fixture(scope="module")
def engines() -> Iterator[Cluster]:
    """Three engines, of which the first has the images of the lab's own engine."""
    cluster = Cluster(FOLDER / "machines.yaml")
    cluster.tool("up", str(COUNT))
    try:
        with subprocess.Popen(["docker", "image", "save", *IMAGES], stdout=subprocess.PIPE) as packing:
            subprocess.run(["docker", "--context", f"{CONTEXTS}-1", "image", "load"], stdin=packing.stdout, check=True)
        yield cluster
    finally:
        cluster.tool("down")


@pytest.fixture
def cluster(engines: Cluster, lab: Lab) -> Iterator[Cluster]:
    """The engines in one swarm. Nothing of the lab is left on any of them after a test."""
    lab.machines = str(engines.file)
    yield engines
    engines.heal()
    assert engines.left() == []


def trial(lab: Lab, variant: str = "least-conn") -> TrialRecord:
    return read_trial(trial_folder(lab.latest(), variant, "heavy-mix", 1))


def test_machines_are_described(cluster: Cluster, lab: Lab) -> None:
    """A machine that is named twice, a name that is wrong, and a machine that has left are told apart."""
    done = lab.run("machines")

    assert done.returncode == 0, done.stdout + done.stderr
    for number in (1, 2, 3):
        assert re.search(rf"^engine-{number} +both +Docker", done.stdout, re.MULTILINE)
        assert re.search(r"[+-]\d+\.\d\d ± \d+\.\d\d", done.stdout)

    for number in (3, 2, 1):
        cluster.docker(number, "swarm", "leave", "--force")
    lacking = lab.run("machines")
    assert lacking.returncode == 1
    no_swarm = "These machines are in no swarm that a machine of the file manages: engine-1, engine-2, engine-3."
    assert f"lacking: {no_swarm} So containers share no network." in lacking.stdout
    assert f" docker --context {CONTEXTS}-1 swarm init makes a swarm" in lacking.stdout
    refused = lab.run(*RUN)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"error: {no_swarm} ")
    cluster.heal()


def test_an_engine_elsewhere_needs_no_shared_folders_and_no_file_of_machines(lab: Lab) -> None:
    """To a lab with another host name, this machine's engine is elsewhere. Watching needs the files: it is refused."""
    lab.before = on_host("elsewhere")
    done = lab.run("run", "silent-clients", "--variants", "newest", "--duration", "3s")
    assert done.returncode == 0, done.stdout + done.stderr
    kept = {path.name for path in lab.latest("silent-clients").glob("*/*/1/points*")}
    assert kept == {"points.json.gz", "points-client.json.gz"}

    refused = lab.run("watch", "heavy-mix")
    assert refused.returncode == 2
    assert re.fullmatch(
        r"error: The engine of \S+ shares no folders with this machine, so its requests cannot be watched\.\n\n"
        r"hint: make experiment NAME=heavy-mix\n",
        refused.stderr,
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"context: {CONTEXTS}-2", "context: nowhere", "The engine of engine-2 does not answer: "),
        (f"context: {CONTEXTS}-2", "context: twin", "engine-1 and engine-2 are the same engine."),
    ],
)
def test_a_wrong_name_and_an_engine_that_is_named_twice_stop_a_run_before_it_starts(
    cluster: Cluster, lab: Lab, tmp_path: Path, old: str, new: str, message: str
) -> None:
    host = json.loads(subprocess.check_output(["docker", "context", "inspect", f"{CONTEXTS}-1"]))[0]["Endpoints"][
        "docker"
    ]
    subprocess.run(["docker", "context", "create", "twin", "--docker", f"host={host['Host']}"], check=True)
    try:
        file = tmp_path / "machines.yaml"
        file.write_text(cluster.file.read_text().replace(old, new))
        done = lab.run(*RUN, "--machines", str(file))
    finally:
        subprocess.run(["docker", "context", "rm", "twin"], check=True)

    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert not lab.results.exists()


SAME = ("status of this process", "limits", "/proc/sys/net/core/somaxconn", "/sys/fs/cgroup/cpu.max",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/pids/pids.max")  # fmt: skip


@pytest.mark.usefixtures("cluster")
def test_the_box_is_the_same_inside_containers_on_every_machine(lab: Lab, tmp_path: Path) -> None:
    """Each container says the same of its rights and limits as its sibling on the lab's own engine."""
    assert lab.run(*RUN).returncode == 0
    here = Lab(lab.root, tmp_path / "here")
    assert here.run(*RUN).returncode == 0

    for name in ("nginx-1", "gunicorn-1", "gunicorn-2", "gunicorn-3", "gunicorn-4"):
        boxes = []
        for results in (lab, here):
            text = (trial_folder(results.latest(), "least-conn", "heavy-mix", 1) / f"{name}.before.txt").read_text()
            parts = re.split(r"^==> (.+) <==\n", text, flags=re.MULTILINE)[1:]
            sections = dict(zip(parts[::2], parts[1::2], strict=True))
            boxes.append({key: sections[key] for key in SAME if key in sections})
        assert len(boxes[0]) >= 5
        assert boxes[0] == boxes[1], name


@pytest.mark.usefixtures("cluster")
def test_a_variant_on_three_machines_gives_what_it_gives_on_one(lab: Lab) -> None:
    """Its workers are on every machine, each machine has a load generator, and the clocks are known well."""
    done = lab.run(*RUN[:3], "shared-socket,one-process,least-conn", "--duration", "20s")

    assert done.returncode == 0, done.stdout + done.stderr
    result = Result(lab.latest())
    slowest = result.each("overhead", "p90", "light")
    assert slowest["shared-socket"] > 10 * slowest["least-conn"]
    assert slowest["shared-socket"] > 10 * slowest["one-process"]
    record = trial(lab)
    assert [one.name for one in record.machines] == ["engine-1", "engine-2", "engine-3"]
    assert [one.generators for one in record.machines] == [["points"], ["points-2"], ["points-3"]]
    [(workers, generators)] = result.requests(
        "least-conn", "heavy-mix", "SELECT count(DISTINCT worker), count(DISTINCT generator) FROM requests"
    )
    assert (workers, generators) == (4, 3)
    hosts = {host for one in record.machines for host in one.hosts}
    served_by = result.requests("least-conn", "heavy-mix", "SELECT DISTINCT split_part(worker, ':', 1) FROM requests")
    assert {host for (host,) in served_by} <= hosts
    assert len(read_run(lab.latest()).machines) == COUNT
    assert lab.run("verify", str(lab.latest())).returncode == 0


def under_load(lab: Lab, harm: Callable[[], object], *further: str) -> "subprocess.CompletedProcess[str]":
    """Start a run of one variant, do harm two seconds after its load began, and return how the run ended."""
    process = lab.start(*RUN, *further)
    wait_for_step(process, "load")
    time.sleep(2)
    harm()
    return subprocess.CompletedProcess([], *finish(process))


def runs_again(lab: Lab) -> None:
    done = lab.run(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("harm", "number"), [("kill", 1), ("kill", 2), ("crash", 3)])
def test_an_engine_that_is_killed_or_whose_machine_crashes_in_the_middle(
    cluster: Cluster, lab: Lab, harm: str, number: int
) -> None:
    """The trial is invalid and names the machine. What the other load generators have sent is kept."""
    done = under_load(lab, lambda: cluster.tool(harm, str(number)))

    assert done.returncode == 1
    record = trial(lab)
    assert record.outcome == "failed"
    assert f"engine-{number}" in (record.reason or "")
    kept = {path.name for path in trial_folder(lab.latest(), "least-conn", "heavy-mix", 1).glob("points*.json.gz")}
    assert len(kept) >= COUNT - 1
    cluster.heal()
    runs_again(lab)


def test_a_link_that_is_cut_in_the_middle(cluster: Cluster, lab: Lab) -> None:
    """Requests to servers behind the link fail or are late, which the numbers show; the run ends by itself."""

    def cut() -> None:
        cluster.tool("cut", "2")
        time.sleep(5)
        cluster.tool("mend", "2")

    done = under_load(lab, cut)

    assert done.returncode in (0, 1)
    summary = json.loads((lab.latest() / "summary.json").read_text())
    waits = [row["measured"] for row in summary["rows"] if (row["metric"], row["stat"]) == ("overhead", "max")]
    failures = [row["measured"] for row in summary["rows"] if (row["metric"], row["stat"]) == ("failures", "count")]
    assert summary["validity"]["verdict"] == "invalid" or max(waits) > 1000 or max(failures) > 0
    runs_again(lab)


def test_an_engine_that_pauses_for_ten_seconds_delays_the_end_of_a_run_and_nothing_else(
    cluster: Cluster, lab: Lab
) -> None:
    def pause() -> None:
        cluster.tool("pause", "2")
        time.sleep(10)
        cluster.tool("resume", "2")

    done = under_load(lab, pause)

    assert done.returncode == 0, done.stdout + done.stderr
    assert trial(lab).outcome == "measured"


def test_a_killed_lab_leaves_machines_that_the_next_command_cleans_up(cluster: Cluster, lab: Lab) -> None:
    process = lab.start(*RUN)
    wait_for_step(process, "load")
    process.kill()
    process.communicate()

    done = lab.run("down")

    assert done.returncode == 0
    assert done.stderr.startswith("Removed what a killed run left behind: stampede-")
    assert cluster.left() == []


def test_an_interrupt_ends_a_run_on_all_machines(cluster: Cluster, lab: Lab) -> None:
    process = lab.start(*RUN)
    wait_for_step(process, "load")
    time.sleep(2)
    process.send_signal(2)
    code, _, err = finish(process)

    assert code == 130
    assert "Interrupted. Nothing is left running; what was measured is kept." in err
    assert cluster.left() == []


@pytest.mark.usefixtures("cluster")
def test_two_people_measure_one_after_the_other(lab: Lab, copied_lab: Lab) -> None:
    """The second lab is on another computer: it has another host name, and does not see the lock of the first lab."""
    copied_lab.edit("stampede/run/machine_lock.py", "/tmp/stampede.lock", "/tmp/stampede-elsewhere.lock")
    copied_lab.before = on_host("elsewhere")
    copied_lab.machines = lab.machines
    first = lab.start(*RUN)
    wait_for_step(first, "load")
    second = copied_lab.start(*RUN)
    said = wait_for_line(second, "Another run is measuring on engine-")
    waits = r"Another run is measuring on engine-\d \(.+-0\)\. This run starts when that run has ended\.\n"
    assert re.fullmatch(waits, said[-1])

    assert finish(first)[0] == 0
    assert finish(second)[0] == 0


@pytest.mark.usefixtures("cluster")
def test_eight_machines_carry_64_replicas_behind_least_conn(engines: Cluster, lab: Lab, copied_lab: Lab) -> None:
    """Every replica serves, and no request waits for a busy one: 64 users, who all sleep, keep 64 workers busy."""
    engines.tool("up", "8")
    load = {
        "duration": {"short": "10s", "full": "10s"},
        "classes": {"user": {"users": 64, "takes_s": 1}},
    }
    variants = {
        "replicas": {"server": "gunicorn-gthread", "workers": 1, "threads": 1, "replicas": 64,
                     "balance": "least_conn", "memory_mib": 64},
    }  # fmt: skip
    add_experiment(copied_lab, "many-replicas", load, variants)
    copied_lab.machines = lab.machines

    done = copied_lab.run_for(300, "run", "many-replicas")

    assert done.returncode == 0, done.stdout + done.stderr
    result = Result(copied_lab.latest("many-replicas"))
    served = "SELECT count(DISTINCT worker), count(error), count(DISTINCT generator) FROM requests"
    assert result.requests("replicas", "users", served) == [(64, 0, 8)]
    record = read_trial(trial_folder(copied_lab.latest("many-replicas"), "replicas", "users", 1))
    assert [sum(name.startswith("gunicorn") for name in record.settings)] == [64]
    assert {len(one.hosts) for one in record.machines[1:]} == {8}
