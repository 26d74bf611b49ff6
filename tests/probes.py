"""What is inside a container, and which addresses it can reach, probed only with the programs of its image."""

import json
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def inspect(container: str) -> dict[str, Any]:
    """Return what ``docker inspect`` says of a container."""
    done = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True)
    [found] = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def inside(container: str, script: str, *, user: str = "", typed: str = "") -> str:
    """Run a shell script in a container, and return its output on stdout and stderr."""
    as_user = ["--user", user] if user else []
    done = subprocess.run(
        ["docker", "exec", "--interactive", *as_user, container, "sh", "-c", script],
        input=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.stdout


@dataclass(frozen=True)
class Facts:
    """What the container's own user and root find in a container, and what the engine says of the container."""

    processes: list[dict[str, str]]
    """/proc/…/status of every process, the processes of the probe included."""
    first_process: str
    written: dict[str, dict[str, str]]
    """The outcome of writing a file, by user and by folder."""
    sockets: list[str]
    """The paths of Unix sockets."""
    limits: dict[str, float | None]
    """What the kernel allows. None: no limit."""
    interfaces_of_ipv6: list[str]
    inspected: dict[str, Any]

    @property
    def users(self) -> set[str]:
        """The ids of the users that processes run as."""
        return {number for one in self.processes for number in one["Uid"].split()}

    @property
    def powers(self) -> set[str]:
        """The capabilities that processes have, or may get, and whether they may gain privileges."""
        found = {one[name] for one in self.processes for name in one if name.startswith("Cap")}
        return {value for value in found if int(value, 16)} | {
            "new privileges" for one in self.processes if one["NoNewPrivs"] != "1"
        }


FOLDERS = ("/", "/srv", "/etc", "/usr/bin", "/tmp")
WRITES = {folder: f"true > {folder}/probe && rm {folder}/probe && echo written" for folder in FOLDERS}
"""Probes by name: scripts that do not exit, and do not start another shell, which would count as a process."""
OF_ITS_USER = WRITES | {
    "processes": "for one in /proc/[0-9]*/status; do cat $one; echo; done 2>/dev/null",
    "first process": "cat /proc/1/comm",
    "IPv6": "cat /proc/net/if_inet6 2>/dev/null",
    "limits": "cd /sys/fs/cgroup;"
    "echo $(cat cpu.max 2>/dev/null || cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us);"
    "cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes;"
    "cat pids.max 2>/dev/null || cat pids/pids.max;"
    "ulimit -n; cat /proc/sys/net/core/somaxconn",
}
OF_ROOT = WRITES | {
    "mounted": "for one in $(cut -d' ' -f5 /proc/self/mountinfo); do test -S $one && echo $one; done",
    "created": "find / -path /proc -prune -o -type s -print 2>/dev/null",
}


def look(container: str) -> Facts:
    """Return the facts about a container, found in two shells: as its own user, and as root."""
    own, root = (said_by(container, probes, user) for probes, user in ((OF_ITS_USER, ""), (OF_ROOT, "0")))
    return Facts(
        processes=[
            {name: value.strip() for name, value in (line.split(":", 1) for line in block.splitlines() if ":" in line)}
            for block in own["processes"].split("\n\n")
            if block.strip()
        ],
        first_process=own["first process"],
        written={
            user: {folder: said[folder].strip().rsplit(": ", 1)[-1] for folder in FOLDERS}
            for user, said in (("its user", own), ("root", root))
        },
        sockets=f"{root['mounted']} {root['created']}".split(),
        limits=limits(own["limits"]),
        interfaces_of_ipv6=[line.split()[-1] for line in own["IPv6"].splitlines()],
        inspected=inspect(container),
    )


def said_by(container: str, probes: dict[str, str], user: str) -> dict[str, str]:
    """Run scripts one after the other in a container, and return the output of each script by its name."""
    end = "-- end of a probe --"
    script = "exec 2>&1\n" + "".join(f"{one}\necho '{end}'\n" for one in probes.values())  # one stream keeps the order
    said = inside(container, script, user=user)
    *parts, rest = said.split(f"{end}\n")
    assert rest == "", said
    return dict(zip(probes, parts, strict=True))


def limits(said: str) -> dict[str, float | None]:
    """Return the limits of a container, read from files of cgroups version 1 or 2. None: no limit."""
    cpu, memory, pids, files, backlog = said.splitlines()
    quota, period = cpu.split()
    return {
        "cores": None if quota in ("max", "-1") else int(quota) / int(period),
        "memory": None if memory == "max" or int(memory) > 2**60 else int(memory),
        "processes": None if pids == "max" else int(pids),
        "open files": None if files == "unlimited" else int(files),
        "backlog": int(backlog),
    }


@cache
def asks_with(container: str) -> str:
    """Return the path of a program in a container's image that can send a request."""
    return inside(container, "command -v curl || command -v bash || command -v k6").strip()


def fetch(container: str, urls: list[str]) -> str:
    """Request several URLs at once from inside a container, with a program of its image, and return all answers."""
    program = Path(asks_with(container)).name
    if program == "curl":
        script = "".join(f"curl --globoff --silent --max-time 2 '{url}' & " for url in urls) + "wait"
        return inside(container, script)
    if program == "bash":
        return inside(container, "".join(f"timeout 2 bash -c '{ask_with_bash(url)}' & " for url in urls) + "wait")
    script = (
        "import http from 'k6/http';\n"
        "export default () => {\n"
        f"  const asked = {json.dumps(urls)}.map((url) => ['GET', url, null, {{ timeout: '2s' }}]);\n"
        "  http.batch(asked).forEach((answer) => console.log(answer.body));\n"
        "};\n"
    )
    return inside(container, "k6 run --quiet --no-summary -", typed=script)


def ask_with_bash(url: str) -> str:
    """Return a bash script that sends a request and writes the answer, for an image that has neither curl nor k6."""
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.0\\r\\nHost: {parts.hostname}\\r\\n\\r\\n"
    return f'exec 3<>/dev/tcp/{parts.hostname}/{parts.port or 80} && printf "{request}" >&3 && cat <&3'


def ready(answers: str) -> int:
    """Return how many answers say that a server is ready. Spaces and escapes in their JSON are ignored."""
    return answers.replace("\\", "").replace(" ", "").count('"ready":true')
