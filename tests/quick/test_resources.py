"""stampede.resources: what the container of an application may use, as files and the kernel say."""

from pathlib import Path

import pytest

from stampede.errors import WrongUse
from stampede.resources import choose_container, containers_in, of_cgroup, read_resources
from stampede.service.description import read_user_service
from stampede.service.discovery import describe_folder

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  template:
    spec:
      initContainers: [{name: prepare, image: shop, resources: {limits: {cpu: 4, memory: 9Gi}}}]
      containers:
      - {name: proxy, image: "nginx:1.26", resources: {limits: {cpu: 100m, memory: 64Mi}}}
      - name: web
        image: shop
        resources: {requests: {cpu: 250m, memory: 256Mi}, limits: {cpu: 500m, memory: 1Gi}}
"""
# as a chart for a service with a proxy and jobs has it: several containers, one of which names a server
VALUES = """
replicaCount: 2
jobs: {image: {tag: ""}, resources: {limits: {cpu: 250m, memory: 128Mi}}}
celery: {worker: {resources: {limits: {cpu: 2000m, memory: 512Mi}}}}
shop:
  nginx: {resources: {limits: {cpu: 2000m, memory: 256Mi}}}
  uwsgi: {resources: {limits: {cpu: 1500m, memory: 0.5Gi}}}
"""
COMPOSE = """
x-base: &base {build: ., mem_limit: 8g}
services:
  db: {image: "postgres:17", mem_limit: 20g}
  worker: {<<: *base, command: celery -A shop worker}
  api:
    <<: *base
    command: gunicorn shop:app
    mem_limit: 6g
    deploy: {replicas: 2, resources: {limits: {cpus: "1.5", memory: 512M}}}
"""
UNIT = "[Service]\nExecStart=/venv/bin/gunicorn shop:app\nCPUQuota=150%\nMemoryMax=1G\n"
SILENT = DEPLOYMENT.replace(", limits: {cpu: 500m, memory: 1Gi}", "")

FILES: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "a deployment with a proxy and an init container": (
        {"k8s/web.yaml": DEPLOYMENT}, {"cpus": 0.5, "memory_mib": 1024, "replicas": 3},
    ),
    "requests are no limits": ({"k8s/web.yaml": SILENT}, {"replicas": 3}),
    "the values of a chart": ({"chart/values.yaml": VALUES}, {"cpus": 1.5, "memory_mib": 512, "replicas": 2}),
    "the least of two limits in a Compose file": (
        {"compose.yaml": COMPOSE}, {"cpus": 1.5, "memory_mib": 512, "replicas": 2},
    ),
    "a quota and cores of a Compose file": (
        {"compose.yaml": "services: {web: {image: shop, cpu_quota: 50000, cpuset: '0-1,3'}}"}, {"cpus": 0.5},
    ),
    "a value of a variable that is given, and one that is not": (
        {"compose.yaml": "services: {web: {image: shop, cpus: '${CPUS:-2.5}', mem_limit: '${MEMORY}'}}"}, {"cpus": 2.5},
    ),
    "zero, which limits nothing": ({"compose.yaml": "services: {web: {image: shop, cpus: '0', mem_limit: 0}}"}, {}),
    "a unit of systemd": ({"shop.service": UNIT}, {"cpus": 1.5, "memory_mib": 1024}),
    "a unit with a drop-in, which counts": (
        {"shop.service": UNIT, "shop.service.d/less.conf": "[Service]\nMemoryMax=300M\n"},
        {"cpus": 1.5, "memory_mib": 300},
    ),
    "an empty value of a drop-in, which takes back": (
        {"shop.service": UNIT, "shop.service.d/a.conf": "[Service]\nCPUQuota=\nMemoryMax=300M\n"}, {"memory_mib": 300},
    ),
    "an empty value, and another after it": (
        {"shop.service": UNIT, "shop.service.d/a.conf": "[Service]\nCPUQuota=\nCPUQuota=50%\n"},
        {"cpus": 0.5, "memory_mib": 1024},
    ),
    # developmentseed/titiler: a Compose file for development names the same server, and limits nothing
    "the limits of a chart, beside a Compose file without limits": (
        {"chart/values.yaml": "image: {command: uvicorn}\nresources: {limits: {cpu: 1, memory: 2Gi}}\n",
         "compose.yaml": "services: {web: {command: uvicorn shop:app}, next: {command: uvicorn}}"},
        {"cpus": 1, "memory_mib": 2048},
    ),
    "several containers, none of which is limited": (
        {"one.yaml": SILENT, "two.yaml": SILENT.replace("web", "api").replace("s: 3", "s: 1")}, {},
    ),
    "a file for production counts more than the base, and one for tests not at all": (
        {"base/web.yaml": DEPLOYMENT, "prod/web.yaml": DEPLOYMENT.replace("500m", "2"),
         "ci/web.yaml": DEPLOYMENT.replace("500m", "9")}, {"cpus": 2, "memory_mib": 1024, "replicas": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), FILES.values(), ids=FILES)
def test_what_files_limit(files: dict[str, str], expected: dict[str, object]) -> None:
    found, problem = choose_container(containers_in(files.items()))

    assert ({key: value for key, (value, _) in found.items()}, problem) == (expected, "")


def test_a_limit_of_a_unit_names_the_file_that_says_it_and_the_slice_that_is_not_read() -> None:
    """A drop-in counts more than the unit; a slice may limit further."""
    files = [("shop.service", f"{UNIT}Slice=web.slice\n"), ("shop.service.d/a.conf", "[Service]\nMemoryMax=300M\n")]
    found, _ = choose_container(containers_in(files))

    assert found == {
        "cpus": (1.5, "shop.service (limits of web.slice are not read)"),
        "memory_mib": (300, "shop.service.d/a.conf (limits of web.slice are not read)"),
    }


def test_a_limit_of_a_container_that_may_be_another_is_no_limit() -> None:
    """Two deployments name no server, and differ."""
    other = DEPLOYMENT.replace("name: web", "name: api").replace("500m", "250m")
    found, problem = choose_container(containers_in([("one.yaml", DEPLOYMENT), ("two.yaml", other)]))

    assert found == {}
    assert problem == "one.yaml (web), two.yaml (api): nothing says which container serves, so its limits are left out"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


CGROUPS: dict[str, tuple[dict[str, str], dict[str, float]]] = {
    "version 2, and those above it": (
        {"proc/self/cgroup": "0::/web.slice/shop.service\n", "sys/fs/cgroup/web.slice/cpu.max": "150000 100000\n",
         "sys/fs/cgroup/web.slice/memory.max": "2147483648\n",
         "sys/fs/cgroup/web.slice/shop.service/cpu.max": "max 100000\n",
         "sys/fs/cgroup/web.slice/shop.service/memory.max": "1073741824\n"},
        {"cpus": 1.5, "memory_mib": 1024},
    ),
    "version 1, as a container sees it": (
        {"proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
         "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
        {"cpus": 0.5},
    ),
    "none": ({}, {}),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), CGROUPS.values(), ids=CGROUPS)
def test_what_a_cgroup_limits(tmp_path: Path, files: dict[str, str], expected: dict[str, float]) -> None:
    found = of_cgroup(tree(tmp_path, files))

    assert found == {key: (value, "the cgroup of this command") for key, value in expected.items()}


def test_a_file_without_limits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(SILENT, encoding="utf-8")
    with pytest.raises(WrongUse, match=r"web\.yaml limits neither cores nor memory\.") as refused:
        read_resources(path)
    assert refused.value.hint.startswith("--limits k8s/web.yaml, or another")


def test_init_writes_limits_with_their_places(tmp_path: Path) -> None:
    """And the file can be read."""
    files = {"Procfile": "web: gunicorn shop:app\n", "shop.py": "app = 1\n", "k8s/web.yaml": DEPLOYMENT}
    shop = tree(tmp_path / "shop", files)
    written = describe_folder(shop).text
    path = tmp_path / "my-service.yaml"
    path.write_text(written, encoding="utf-8")

    assert "  cpus: 0.5  # from k8s/web.yaml, web\n  memory_mib: 1024  # from k8s/web.yaml, web\n" in written
    served = read_user_service(path).served
    assert (served.cpus, served.memory_mib, served.replicas) == (0.5, 1024, 3)


def test_the_container_with_the_name_of_the_application_is_the_application() -> None:
    """Beside it, another image names a server."""
    services = (
        "services:\n  backend: {image: 'ghcr.io/tea/tea-shop:${TAG}', cpus: 0.9}\n"
        "  mock: {build: mock, command: uvicorn mock:app, cpus: 0.1}\n"
    )

    assert choose_container(containers_in([("compose.yaml", services)]), "", "tea-shop")[0]["cpus"][0] == 0.9
    assert choose_container(containers_in([("compose.yaml", services)]), "", "shop")[0]["cpus"][0] == 0.1


def test_init_takes_the_limits_of_the_service_that_compose_starts(tmp_path: Path) -> None:
    """And not those of a deployment beside it, whose container has another name."""
    compose = COMPOSE.replace("x-base: &base {build: ., mem_limit: 8g}", "x-base: &base {image: tea, mem_limit: 8g}")
    shop = tree(tmp_path / "shop", {"compose.yaml": compose, "shop.py": "app = 1\n", "k8s/web.yaml": DEPLOYMENT})

    written = describe_folder(shop).text
    assert "  cpus: 1.5  # from compose.yaml, api\n  memory_mib: 512  # from compose.yaml, api\n" in written
    assert "  replicas: 2  # from compose.yaml" in written


def test_init_takes_no_limits_of_a_pod_that_people_start_by_hand(tmp_path: Path) -> None:
    """RedHatInsights/insights-host-inventory has one for debugging."""
    pod = "kind: Pod\nspec: {containers: [{name: kcat, image: kcat, resources: {limits: {cpu: 1, memory: 1Gi}}}]}\n"
    shop = tree(tmp_path / "shop", {"Procfile": "web: gunicorn shop:app\n", "shop.py": "", "scripts/kcat.yml": pod})

    assert "cpus" not in describe_folder(shop).text
    (shop / "scripts/kcat.yml").write_text(f"{pod}---{DEPLOYMENT}", encoding="utf-8")
    assert "  cpus: 0.5  # from scripts/kcat.yml, web\n" in describe_folder(shop).text
