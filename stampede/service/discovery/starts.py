"""How a repository starts its service: the commands of all its files, the one that counts most first."""

from collections.abc import Iterator, Sequence

from stampede.service.discovery.containers import FOR_DEVELOPMENT, compose_starts, docker_starts
from stampede.service.discovery.platforms import last_resorts, machine_starts, platform_starts
from stampede.service.discovery.repository import Repository, Start


def starts_of(repository: Repository) -> list[Start]:
    """Return the commands that start servers, the one that counts most first, those for development last.

    A command that was not understood is a problem of the repository, if it counts more than each that was.
    """
    compose = compose_starts(repository)
    places, files = ({each(start) for start in compose if start.server} for each in (_place, _dockerfile))
    docker = [start for start in docker_starts(repository)
              if start.place not in places and (start.server or _dockerfile(start) not in files)]  # fmt: skip
    others = {_dockerfile(start) for start in compose if start.server and _replaces(start)}
    images = [start for start in docker if _dockerfile(start) not in others]
    groups = [platform_starts(repository), images, compose, [start for start in docker if start not in images]]
    if not any(start.server for group in groups for start in group):
        groups.append(machine_starts(repository))
    if not any(start.server for group in groups for start in group):
        groups.append([start for start in last_resorts(repository) if start.server])
    known = sorted((start for group in groups for start in group if start.server), key=_is_for_development)
    repository.problems += _unknown_commands(groups)
    return known


def _replaces(start: Start) -> bool:
    """Return whether a Compose file replaces the command of an image by another one that is for production."""
    return not start.is_for_development and not FOR_DEVELOPMENT.search(start.compose)


def _place(start: Start) -> object:
    return start.place


def _dockerfile(start: Start) -> object:
    return start.image.file


def _is_for_development(start: Start) -> bool:
    return start.is_for_development


def _unknown_commands(groups: Sequence[Sequence[Start]]) -> Iterator[str]:
    """Yield what was not understood in files that count more than the first file that was."""
    is_known = any(start.server for group in groups for start in group)
    for group in groups:
        if any(start.server for start in group):
            return
        for start in group:
            if start.words:
                yield f"{start.place}: command not understood: {start.command}"
            elif not is_known:
                yield f"{start.place}: states no command, so that of its base image counts, which the lab cannot read"
