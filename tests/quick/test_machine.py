"""stampede.docker: what is missing is put in place where that is allowed, and explained where it is not.

The container engine is a program on the PATH that these tests replace: the real one cannot be missing, old or cut off
from its registry on demand. Each replacement writes down how it was called.
"""

import errno
import io
import json
import os
import platform
import pwd
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from inline_snapshot import snapshot

from stampede.docker import client, commands, doctor, engine, facts, images, machine_usage, processor, provenance
from stampede.docker.cluster.ready import find_machine
from stampede.docker.engine import memory_budgets
from stampede.errors import LabError
from stampede.paths import TOOLS
from stampede.plan import MemoryBudget
from tests.conftest import Lab
from tests.synthetic import Request, make_run

HEALTHY = """
case "$*" in
  "info --format"*json*) echo '{{"ServerVersion": "28.0"}}' ;;
  "version --format"*) echo 28.0 ;;
  "compose version"*) echo 2.30.0 ;;
  "buildx version"*) echo buildx 0.20 ;;
  "image inspect"*) {inspect} ;;
  "image pull"*) {pull} ;;
  "buildx build"*) touch {folder}/built ;;
esac
"""
NO_IMAGE = "echo 'Error: No such image' >&2; exit 1"


@pytest.fixture
def said() -> list[str]:
    """What the lab says while it makes the machine ready."""
    return []


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what a test puts there and a shell's basic tools."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "touch", "cat"):
        (programs / name).symlink_to(Path("/bin") / name)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    return programs


def put(path: Path, name: str, script: str) -> Path:
    """Put a program on the PATH that logs its calls, and return the log."""
    log = path.parent / f"{name}.log"
    (path / name).write_text(f'#!/bin/sh\necho "$*" >> {log}\n{script}\n')
    (path / name).chmod(0o755)
    return log


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be somebody who may not install anything, on Linux."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("stampede.docker.engine.platform.system", lambda: "Linux")


def refused(said: list[str]) -> str:
    """Return the message and the way out if this machine cannot be made ready; nothing is said, and nothing starts."""
    with pytest.raises(LabError) as caught:
        doctor.make_ready(said.append)
    assert said == []
    return f"{caught.value.message}\n{caught.value.hint}"


@pytest.mark.usefixtures("not_root")
def test_without_an_engine_and_rights_the_exact_commands_are_named(path: Path, said: list[str]) -> None:
    """An old Compose counts as missing."""
    missing = refused(said)

    assert missing == snapshot("""\
This machine has no container engine with Compose v2 and buildx.
Debian or Ubuntu, as root:  tools/install-engine.sh
Fedora:                     sudo dnf install moby-engine docker-compose docker-buildx
macOS or Windows (WSL2):    install Docker Desktop, or: brew install colima docker docker-compose docker-buildx
Then run the same command again.\
""")
    put(path, "docker", 'case "$1" in compose) echo 1.29.2 ;; *) echo 28.0 ;; esac')
    assert refused(said) == missing


NO_ANSWER = 'case "$1" in compose) echo 2.30.0 ;; buildx) echo 0.20 ;; *) exit 1 ;; esac'


@pytest.mark.usefixtures("not_root")
def test_an_engine_that_may_not_be_started_is_explained(
    path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian keeps dockerd in /usr/sbin, where only root looks; an engine elsewhere is not replaced by one here."""
    put(path, "docker", NO_ANSWER)
    hidden = refused(said)
    put(path, "dockerd", "")

    assert refused(said) == snapshot("""\
The container engine does not answer.
sudo systemctl start docker, then run the same command again.\
""")
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    assert [one.splitlines()[0] for one in (hidden, refused(said))] == ["The container engine does not answer."] * 2


@pytest.mark.usefixtures("not_root")
def test_a_user_whom_the_engine_refuses_is_told_how_to_get_in(path: Path, said: list[str]) -> None:
    """Whether the engine runs is not the question then, and another engine would not help."""
    put(path, "docker", NO_ANSWER.replace("exit 1", "echo 'Permission Denied while trying to connect' >&2; exit 1"))

    told = refused(said)

    name = pwd.getpwuid(os.getuid()).pw_name
    assert told.startswith("The container engine runs, and this user may not use it.\nsudo usermod --append ")
    assert f" docker {name}, then log in again (or: newgrp docker)." in told
    assert next(one for one in doctor.checks() if one.what == "container engine").remedy == told.replace("\n", " ")


def test_an_engine_that_says_nothing_is_neither_installed_nor_started(
    path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen engine may keep even the questions for the versions of the plug-ins waiting. Root would install it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for module in (commands, engine):
        monkeypatch.setattr(module, "ANSWERS_WITHIN_S", 0.3)
    monkeypatch.setattr(client, "TOLD_WITHIN_S", 0.3)
    started = put(path, "dockerd", "")
    put(path, "docker", "exec /bin/sleep 1000")

    message = refused(said)

    assert "is there and does not answer" in message
    assert "paused or frozen" in message
    assert not started.exists()


@pytest.fixture
def own_engine(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be root on a machine without systemd, whose engine is ``dockerd``; return the engine's folder."""
    root = path.parent / "engine"
    root.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine, "SYSTEMD", path / "no-systemd")
    monkeypatch.setattr(engine, "ENGINE_LOG", path.parent / "engine.log")
    answers = HEALTHY.format(inspect="echo []", pull="exit 1", folder=path.parent)
    put(path, "docker", f'case "$1" in version) [ -e {root}/started ] || exit 1 ;; esac{answers}')
    return root


@pytest.mark.parametrize(
    ("logged", "reason"),
    [
        ("noise\nfailed to start daemon: no space\nmore noise", "failed to start daemon: no space"),
        ("noise\npanic: another\ngoroutine 1", "panic: another"),
        ("noise\nthe last words", "the last words"),
        ("\n", "exit code 1"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own_engine")
def test_an_engine_that_ends_instead_of_starting_says_why(
    path: Path, said: list[str], logged: str, reason: str
) -> None:
    put(path, "dockerd", f"printf '{logged}' >&2; exit 1")

    with pytest.raises(LabError, match=r"^The container engine ended instead of starting\.$") as caught:
        engine.make_engine_ready(said.append)

    assert caught.value.hint == f"{reason}\nLog: {path.parent}/engine.log"


@pytest.mark.usefixtures("own_engine")
def test_an_engine_that_never_answers_is_given_up(path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ENGINE_START_S", 0.2)
    put(path, "dockerd", f"echo $$ > {path.parent}/dockerd.pid; exec /bin/sleep 1000")

    with pytest.raises(LabError, match=r"^The container engine did not answer within 0\.2 s\.$") as caught:
        engine.make_engine_ready(said.append)

    os.kill(int((path.parent / "dockerd.pid").read_text()), signal.SIGKILL)
    assert caught.value.hint == engine.how_to_start()


def test_what_can_be_pulled_is_pulled_by_its_digest_and_not_built(path: Path, said: list[str], tmp_path: Path) -> None:
    """A tag may name something else tomorrow. FROM and Compose know the plain name, so the image gets that, too."""
    pulled = tmp_path / "pulled"
    there = '[{"Id": "sha256:1", "Config": {"Labels": {}}}]'
    inspect = f"if [ -e {pulled} ]; then echo '{there}'; else {NO_IMAGE}; fi"
    log = put(path, "docker", HEALTHY.format(inspect=inspect, pull=f"touch {pulled}", folder=tmp_path))

    doctor.make_ready(said.append)

    assert [line for line in log.read_text().splitlines() if line.startswith(("image pull", "image tag"))] == [
        f"image pull --quiet {images.PINNED['debian:trixie-slim']}",
        f"image tag {images.PINNED['debian:trixie-slim']} debian:trixie-slim",
    ]
    assert said[0] == "Pulling debian:trixie-slim …"
    assert said[1].startswith("debian:trixie-slim is ready after ")
    assert not (tmp_path / "built").exists()


@pytest.mark.usefixtures("not_root")
def test_without_a_registry_stand_ins_are_built_or_the_way_round_is_named(
    path: Path, said: list[str], tmp_path: Path
) -> None:
    pull = "echo 'dial tcp: no such host' >&2; exit 1"
    put(path, "docker", HEALTHY.format(inspect=NO_IMAGE, pull=pull, folder=tmp_path))

    with pytest.raises(LabError) as caught:
        doctor.make_ready(said.append)

    told = "\n".join([*said, caught.value.message, caught.value.hint])
    assert told.replace(images.PINNED["debian:trixie-slim"], "PINNED") == snapshot("""\
Pulling debian:trixie-slim …
debian:trixie-slim could not be pulled (dial tcp: no such host).
The image debian:trixie-slim can be neither pulled nor built on this machine.
On Debian or Ubuntu, root can build it from the package archive: sudo make setup
On a machine that reaches a registry: docker pull PINNED && docker tag PINNED debian:trixie-slim && docker save \
debian:trixie-slim --output image.tar
On this machine: docker load --input image.tar\
""")


WITHOUT_K6 = """
case "$*" in
  "version --format"*) echo 28.0 ;;
  "compose version"*) echo 2.30.0 ;;
  "buildx version"*) echo buildx 0.20 ;;
  "image inspect debian"*) echo '[{{"Id": "sha256:1", "Config": {{"Labels": {{}}}}}}]' ;;
  "image inspect"*) echo 'Error: No such image' >&2; exit 1 ;;
  "image pull"*) echo 'no such host' >&2; exit 1 ;;
  "buildx build"*) n=0
    while [ ! -e {folder}/other ]; do n=$((n + 1)); [ $n -lt 400 ] || exit 1; sleep 0.05; done ;;
  *" build nginx") touch {folder}/other ;;
esac
"""


def test_other_images_are_built_while_k6_is_built(path: Path, said: list[str], tmp_path: Path) -> None:
    """k6 is not ready before the other image is."""
    (path / "sleep").symlink_to("/bin/sleep")
    put(path, "docker", WITHOUT_K6.format(folder=tmp_path))

    doctor.make_ready(said.append, [images.BESIDE_SERVERS["nginx"]])

    assert [re.sub(r"\d+ s", "… s", one) for one in said] == [
        f"Pulling {images.K6} …",
        f"{images.K6} could not be pulled (no such host).",
        "Building a stand-in from package registries …",
        "Building stampede/nginx:trixie …",
        "Built stampede/nginx:trixie in … s.",
        f"{images.K6} is ready after … s.",
    ]


def test_every_base_image_is_pinned_by_a_digest() -> None:
    assert list(images.PINNED) == list(images.BASE_IMAGES)
    for name, pinned in images.PINNED.items():
        assert re.fullmatch(re.escape(name) + "@sha256:[0-9a-f]{64}", pinned)


PIN = images.PINNED["debian:trixie-slim"].split("@")[1]


@pytest.mark.parametrize(
    ("labels", "digests", "origin", "recorded"),
    [
        ({}, [f"debian@{PIN}"], "pulled as pinned", [f"debian@{PIN}"]),
        ({}, ["debian@sha256:1"], "not the pinned image", ["debian@sha256:1"]),
        ({}, [], "not the pinned image", []),
        ({"stampede.stand-in": "attic"}, ["debian@sha256:1"], "stand-in from the attic", []),
    ],
)
def test_where_a_base_image_came_from_is_told_and_recorded(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: dict[str, str], digests: list[str],
    origin: str, recorded: list[str],
) -> None:  # fmt: skip
    described = json.dumps({"Id": "sha256:1", "Config": {"Labels": labels}, "RepoDigests": digests})
    several = f'shift 2; echo "["; for image; do echo "$between"; echo \'{described}\'; between=,; done; echo "]"'
    put(path, "docker", HEALTHY.format(inspect=several, pull="", folder=tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    details = {finding.what: finding.detail for finding in doctor.checks()}
    [image, ours] = provenance.image_records({"debian:trixie-slim": (), "stampede/nginx:trixie": ()})

    assert details["debian:trixie-slim"] == origin
    assert image.digests == recorded
    assert ours.digests == []


@pytest.mark.parametrize("kept", [None, "", '["half a file', '{"k6": 1}', "[]"])
def test_what_is_in_an_image_is_asked_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str | None
) -> None:
    """What cannot be understood is asked again, and what did not answer."""
    asked = tmp_path / "asked"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    put(path, "docker", "echo k6 2.1.0; exit 1")
    assert provenance.packages_of("sha256:1") == {}
    put(path, "docker", f"echo once >> {asked}; echo k6 2.1.0")
    if kept is not None:
        provenance.packages_of("sha256:1")
        [known] = (tmp_path / "cache").rglob("1-*.json")
        known.write_text(kept)
        asked.unlink()

    found = [provenance.packages_of(f"sha256:{identity}") for identity in (1, 1, 2)]

    assert found == 3 * [{"k6": "2.1.0"}]
    assert asked.read_text() == 2 * "once\n"
    monkeypatch.setattr(provenance, "_PACKAGES", "another question")
    provenance.packages_of("sha256:1")
    assert asked.read_text() == 3 * "once\n"


@pytest.mark.parametrize("where", ["in a file", "without a home"])
def test_a_cache_that_cannot_be_written_is_none(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file") if where == "in a file" else "")
    monkeypatch.setattr(Path, "home", homeless)
    put(path, "docker", "echo k6 2.1.0")

    assert provenance.packages_of("sha256:1") == {"k6": "2.1.0"}


def test_new_pins_are_those_of_the_registry_and_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, tools = tmp_path / "programs", tmp_path / "tools"
    programs.mkdir()
    tools.mkdir()
    shutil.copy(TOOLS / "lock-images.sh", tools)
    (tools / "base-images.txt").write_text("one:1@sha256:old\ntwo:2@sha256:kept\n")
    said = "Name:   one:1\nDigest:  sha256:new\n\nManifests:\n  Name: one:1@sha256:other\n  Digest: sha256:other"
    put(programs, "docker", f'case "$4" in one:1) echo "{said}" ;; *) echo "no such host" >&2; exit 1 ;; esac')
    monkeypatch.setenv("PATH", str(programs), prepend=":")

    done = subprocess.run([tools / "lock-images.sh"], capture_output=True, text=True, check=True)

    assert (tools / "base-images.txt").read_text() == "one:1@sha256:new\ntwo:2@sha256:kept\n"
    assert done.stderr == "no such host\nNo registry names a digest of two:2, so its pin stays as it is.\n"


def test_the_doctor_says_what_is_missing_and_how_to_get_it(path: Path) -> None:
    assert path.exists()
    python, _, docker = doctor.checks()

    assert python.there
    assert not docker.there
    assert "tools/install-engine.sh" in docker.remedy


def engine_says(path: Path, **told: object) -> Path:
    """Put an engine on the PATH that says this of itself, and return the log of its calls."""
    said = json.dumps({"ServerVersion": "29.1.0", "OperatingSystem": "Debian 13", "Architecture": "x86_64", **told})
    answers = f"""case "$*" in
      'info --format {{{{json .}}}}') echo '{said}'; exit ;;
      *Components*) echo {told.get("components", "Engine")}; exit ;;
    esac"""
    return put(path, "docker", f"{answers}{HEALTHY.format(inspect=NO_IMAGE, pull='exit 1', folder=path.parent)}")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"MemoryLimit": False}, ["limit the memory", "use up all memory", "cgroup_enable=memory"]),
        ({"MemoryLimit": False, "SecurityOptions": ["name=seccomp", "name=rootless"]}, ["Delegate=cpu cpuset"]),
        ({"components": "Podman Engine", "ServerVersion": "4.3.1"}, ["Podman 4.3.1", "Docker"]),
    ],
)
def test_an_engine_that_cannot_serve_the_lab_is_refused_before_anything_starts(
    path: Path, said: list[str], told: dict[str, object], says: list[str]
) -> None:
    engine_says(path, **told)

    message = refused(said)
    assert [word for word in says if word not in message] == []


def test_limits_that_the_engine_does_not_enforce_are_named(path: Path, said: list[str]) -> None:
    engine_says(path, MemoryLimit=True, CpuCfsQuota=False, CPUSet=False)

    engine.check_limits(said.append)

    assert said == snapshot(
        [
            "The container engine does not enforce limits of processor time, the choice of cores: containers may "
            "disturb each other, and the machine."
        ]
    )


@pytest.mark.parametrize(("platform", "emulates"), [("linux/arm64", True), ("linux/amd64", False)])
def test_an_emulated_processor_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], platform: str, emulates: bool
) -> None:
    monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", platform)
    engine_says(path)

    engine.check_limits(said.append)

    told = facts.ask_engine()
    assert told
    assert told.architecture == ("arm64 emulated" if emulates else "x86_64")
    assert [f"DOCKER_DEFAULT_PLATFORM is {platform}" in one for one in said] == [True] * emulates


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"CgroupVersion": "2"}, "Docker 29, cgroups 2, x86_64, root"),
        ({"CgroupVersion": "2", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]},
         "Docker 29 with containerd's images, cgroups 2, x86_64, root"),
        ({"components": "Podman Engine", "CgroupVersion": "2", "SecurityOptions": ["name=rootless"]},
         "Podman 29, cgroups 2, x86_64, rootless"),
    ],
)  # fmt: skip
def test_the_doctor_describes_the_engine_and_says_whether_the_lab_was_tried_there(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, object], kind: str
) -> None:
    """Cores and memory are those of the engine, which may run in a machine of its own."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(facts, "TRIED", tmp_path / "tried.json")
    (tmp_path / "tried.json").write_text(
        json.dumps([{"kind": "Docker 29, cgroups 2, x86_64, root", "date": "2026-01-02"}])
    )
    engine_says(path, NCPU=4, MemTotal=2**33, **told)

    found = {one.what: one.detail for one in doctor.checks()}

    assert found["container engine"] == f"{kind.split(maxsplit=1)[0]} 29.1.0 on Debian 13, 4 cores, 8.0 GiB, cgroups 2"
    assert found["limits"] == "all are enforced"
    assert found["this combination"] == (
        f"{kind}: {'tried on 2026-01-02' if kind.startswith('Docker 29, ') else 'not tried'}"
    )


@pytest.mark.parametrize(("told", "cores"), [({"NCPU": 3}, 3), ({}, os.cpu_count()), ({"NCPU": 0}, os.cpu_count())])
def test_containers_have_the_cores_of_the_engine(path: Path, told: dict[str, object], cores: int) -> None:
    """A virtual machine may have fewer cores than the machine on which it runs."""
    engine_says(path, **told)

    assert engine.engine_cores() == cores
    assert engine.default_jobs() == 4 * cores


def test_the_engine_is_asked_once_what_it_is(path: Path, said: list[str]) -> None:
    """An engine that does not answer is asked again, because it may start meanwhile."""
    assert facts.ask_engine() is None
    log = engine_says(path, NCPU=3, MemTotal=2**32, MemoryLimit=True)

    engine.check_limits(said.append)
    found = engine.engine_cores(), budget().total_mib, find_machine().shares_files

    assert found == (3, 4096, True)
    assert [line for line in log.read_text().splitlines() if line.startswith("info")] == ["info --format {{json .}}"]


def budget() -> MemoryBudget:
    found = memory_budgets()
    assert found
    return found.budgets[0]


def test_of_an_engine_elsewhere_all_memory_is_taken_for_available_and_without_one_that_of_this_machine(
    path: Path,
) -> None:
    total_mib = psutil.virtual_memory().total // 2**20
    here = budget()
    engine_says(path, MemTotal=3 * 2**30)

    assert here.total_mib == total_mib
    assert 0 < here.available_mib <= total_mib
    assert budget() == MemoryBudget(total_mib=3072, available_mib=3072)


FLAGS = "flags\t\t: fpu sse4_2 popcnt avx avx2 fma bmi1 bmi2 abm\n"


@pytest.mark.parametrize(
    ("told", "lacking"),
    [
        (f"processor\t: 0\nmodel name\t: Some CPU\n{FLAGS}", None),
        (f"model name\t: Old CPU\n{FLAGS}".replace(" avx avx2", ""), "Old CPU lacks avx, avx2"),
        (FLAGS.replace(" bmi2", ""), "the processor of this machine lacks bmi2"),
        ("Features\t: fp asimd\n", None),  # not an x86-64
        (None, None),
    ],
)
@pytest.mark.usefixtures("path")
def test_a_processor_that_cannot_run_a_package_is_told_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str | None, lacking: str | None
) -> None:
    """A machine that does not describe its processor lacks nothing."""
    if told:
        (tmp_path / "cpuinfo").write_text(told)
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")

    problem = processor.problem()
    found = next(one for one in doctor.checks() if one.what == "processor")

    assert (problem is None) == (lacking is None) == found.there
    if lacking:
        assert problem
        assert lacking in problem
        assert "duckdb" in problem
        assert "x86-64-v3" in found.remedy


def test_a_package_that_the_processor_cannot_run_is_named_when_it_is_installed(tmp_path: Path) -> None:
    """A python that is ended by the signal when it imports duckdb stands for such a processor."""
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOLS / "venv.sh", tmp_path / "tools")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    put(tmp_path / ".venv" / "bin", "pip", "")
    put(tmp_path / ".venv" / "bin", "python", 'case "$2" in *duckdb) kill -ILL $$ ;; esac')

    done = subprocess.run([tmp_path / "tools/venv.sh", "core"], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "error: The package duckdb has an instruction that this machine's processor lacks.\n" in done.stderr
    assert "x86-64-v3" in done.stderr
    assert not (tmp_path / ".venv" / "core").exists()


def test_no_command_starts_on_a_processor_that_would_end_it_but_the_doctor(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of "Illegal instruction" and nothing else."""
    (tmp_path / "cpuinfo").write_text(FLAGS.replace(" avx2", ""))
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setenv("PATH", str(tmp_path))

    refused = lab.call("list")
    looked = lab.call("doctor")

    assert refused.returncode == 1
    assert refused.stderr.startswith("error: duckdb ")
    assert "lacks avx2" in refused.stderr
    assert "x86-64-v3" in refused.stderr
    assert "missing processor: duckdb" in looked.stdout


@pytest.fixture
def macos(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a Mac with 12 cores and 32 GiB, whose engine has a virtual machine with 4 cores and 8 GiB."""
    really_open = io.open

    def open_here(file: Any, *rest: Any, **how: Any) -> Any:  # as io.open has it
        if str(file).startswith(("/proc", "/sys")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
        return really_open(file, *rest, **how)

    monkeypatch.setattr(io, "open", open_here)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    for name, told in {"system": "Darwin", "node": "laptop.local", "machine": "arm64", "processor": "arm"}.items():
        monkeypatch.setattr(platform, name, lambda told=told: told)
    engine_says(path, Name="docker-desktop", OperatingSystem="Docker Desktop", Architecture="aarch64", NCPU=4,
                MemTotal=2**33, CgroupVersion="2", MemoryLimit=True)  # fmt: skip


@pytest.mark.usefixtures("macos")
def test_on_a_host_without_linux_s_files_the_machine_is_that_of_the_engine() -> None:
    """Its clock and its usage are asked for, too, because it is an engine elsewhere: a probe runs there."""
    machine = find_machine()

    assert (machine.name, machine.shares_files) == ("docker-desktop", False)
    assert (engine.engine_cores(), budget()) == (4, MemoryBudget(total_mib=8192, available_mib=8192))
    assert processor.problem() is None
    assert not machine_usage.is_busy()


@pytest.mark.usefixtures("macos")
def test_a_host_without_linux_s_files_plans_checks_and_reports(lab: Lab, tmp_path: Path) -> None:
    make_run(tmp_path / "run", {"one": [Request()]})

    planned = lab.call("plan", "heavy-mix")
    reported = lab.call("report", str(tmp_path / "run"))
    looked = lab.call("doctor")

    assert (planned.returncode, reported.returncode) == (0, 0)
    assert "Docker 29.1.0 on Docker Desktop, 4 cores, 8.0 GiB, cgroups 2" in looked.stdout
    assert engine.how_to_start().startswith("Start Docker Desktop")


OF_GNU = {
    r"sed -i|sed -r|sed .*\\t": "sed of BSD has no -r and no \\t, and its -i takes a suffix",
    r"readlink -f|realpath -|\bdate (-d|--)|grep -P|find .*-(newermt|printf)": "no option of macOS",
    r"declare -A|mapfile|readarray|\$\{\w+(,,|\^\^)|\|&|&>>|\[\[": "missing in the sh of macOS",
    r"\b(nproc|taskset|flock|setsid|timeout)\b": "no program of macOS",
}


@pytest.mark.parametrize(
    "script", ["../Makefile", "venv.sh", "lock.sh", "lock-images.sh", "install-bundle.sh", "install-chromium.sh"]
)
def test_what_a_mac_runs_needs_no_program_of_linux(script: str) -> None:
    lines = [line for line in (TOOLS / script).read_text().splitlines() if not line.lstrip().startswith("#")]

    assert [(line, why) for line in lines for pattern, why in OF_GNU.items() if re.search(pattern, line)] == []
