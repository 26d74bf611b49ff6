"""stampede.docker on a machine that is ready."""

from stampede.docker import doctor


def test_a_ready_machine_is_left_alone_and_nothing_is_said() -> None:
    said: list[str] = []

    doctor.make_ready(said.append)

    assert said == []


def test_the_doctor_finds_everything_on_a_ready_machine() -> None:
    found = doctor.checks()

    assert [finding.what for finding in found] == [
        "Python >= 3.11", "processor", "docker", "container engine", "Compose v2", "buildx", "limits",
        "this combination", "debian:trixie-slim", "grafana/k6:2.1.0", "disk space >= 2 GiB",
    ]  # fmt: skip
    assert all(finding.there for finding in found)
