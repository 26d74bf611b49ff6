"""How a Dockerfile or a Compose file starts a service."""

import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from dockerfile_parse import DockerfileParser

from stampede.service.description import variables_of_env_file
from stampede.service.discovery.follow import follow
from stampede.service.discovery.installs import Installs, indexes_of, installs_of
from stampede.service.discovery.repository import NOT_OF_THE_SERVICE, OF_SERVER, Image, Repository, Start, preparing
from stampede.service.discovery.shell import Shell

FOR_DEVELOPMENT = re.compile(
    r"(^|[._/-])(override|dev|devel|development|local|debug|tests?|ci|e2e|docs?|examples?|devcontainer)([._/-]|$)"
)
_FOR_PRODUCTION = re.compile(r"(^|[._/-])(prod|production|deploy|release)([._/-]|$)")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")


def docker_images(repository: Repository) -> list[Start]:
    """Return what the Dockerfiles of a repository state, not followed, the one that counts most first."""
    paths = repository.files("Dockerfile*", "*.Dockerfile", "*.dockerfile", "Containerfile*")
    named = [path for path in paths if path.suffix not in (".md", ".txt", ".dockerignore", ".j2", ".py")]
    return [image_of(repository, path) for path in _by_purpose(named, repository)]


def docker_starts(repository: Repository) -> list[Start]:
    """Return what the Dockerfiles of a repository start, the one that counts most first."""
    return [each for image in docker_images(repository) for each in (follow(image, repository) or [image])]


def _by_purpose(paths: Sequence[Path], repository: Repository) -> list[Path]:
    """Return files for production first, and files for development last."""

    def key(path: Path) -> tuple[bool, int, bool]:
        name = str(path.relative_to(repository.folder)).lower()
        return bool(FOR_DEVELOPMENT.search(name)), name.count("/"), not _FOR_PRODUCTION.search(name)

    return sorted(paths, key=key)


def image_of(repository: Repository, path: Path, context: Path | None = None, target: str = "",
             arguments: Mapping[str, str] | None = None) -> Start:  # fmt: skip
    """Return what the last stage of a Dockerfile, or the stage that is named, starts.

    ``context`` is the folder that it is built from, and ``arguments`` are those of the build.
    """
    name = str(path.relative_to(repository.folder))
    text, written = _split_heredocs(repository.text(path))
    stages: dict[str, _Stage] = {}
    stage = _Stage()
    common: dict[str, str] = {}
    before: list[tuple[str, str]] = []
    for step in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:  # type: ignore[arg-type]  # it takes bytes
        value = step["value"]
        if step["instruction"] == "FROM":
            value = _interpolated(value, Shell(common))
            source, _, alias = re.sub(r"--platform=\S+\s+", "", value).partition(" ")
            base = stages.get(source, _Stage(base=source))
            stage = replace(base, environment=dict(base.environment), given=dict(base.given), copies=[*base.copies],
                            sources=[*base.sources], arguments=dict(common))  # fmt: skip
            stages[alias.split()[-1] if alias else str(len(stages))] = stage
        elif step["instruction"] == "ARG" and not stages:
            common |= _pairs(value, Shell(common)) | {**(arguments or {})}
        elif step["instruction"] in ("COPY", "ADD"):
            stage.copy(value, stages, written)
        else:
            if step["instruction"] == "RUN":
                value = _script(value, written)
                before += ((command, f"{name}:{step['startline'] + 1}") for command in _preparing(value))
            stage.take(step["instruction"], value, f"{name}:{step['startline'] + 1}", arguments or {}, repository.cores)
    stage = stages.get(target or _for_production(stages, stage), stage)
    image = Image(
        context=context or _context(repository, path, stage), file=path, folder=stage.folder,
        copies=tuple(stage.copies), written=stage.written, entrypoint=tuple(stage.entrypoint),
        installs=sum((source.installs for source in stage.sources if source.has_python), stage.installs),
    )  # fmt: skip
    given = {key: value for key, value in stage.given.items() if not NOT_OF_THE_SERVICE.match(key)}
    folder = repository.folder_of(stage.folder, image)
    start = Start(stage.words, folder, stage.place or name, stage.environment, given, image=image,
                  before=tuple(before))  # fmt: skip
    return start if start.words else _base_image_start(start, stage.base, repository)


def _preparing(run: str) -> Iterator[str]:
    """Yield the commands of a RUN that prepare an application, with the variables that they are given."""
    for begun in Shell({}).run(run):
        if command := preparing(shlex.join(begun.words)):
            given = [f"{name}={value}" for name, value in begun.given.items() if not re.search(r"[\s$]", value)]
            yield " ".join([*given, command])


def _for_production(stages: Mapping[str, "_Stage"], last: "_Stage") -> str:
    """Return the stage for production if the last one is for development; else nothing."""
    if not any(stage is last and FOR_DEVELOPMENT.search(name.lower()) for name, stage in stages.items()):
        return ""
    before = [name for name in reversed([*stages]) if not FOR_DEVELOPMENT.search(name.lower()) and stages[name].words]
    return next((name for name in before if _FOR_PRODUCTION.search(name.lower())), next(iter(before), ""))


def _base_image_start(start: Start, base: str, repository: Repository) -> Start:
    """Return what an image starts whose command is that of a well-known base image, which the Dockerfile names."""
    if not base.startswith("tiangolo/uvicorn-gunicorn"):
        return start
    said = start.environment
    is_package = repository.program_path("/app/app/main.py", start)
    module = said.get("MODULE_NAME") or ("app.main" if is_package else "main")
    app = said.get("APP_MODULE") or f"{module}:{said.get('VARIABLE_NAME', 'app')}"
    workers = said.get("WEB_CONCURRENCY") or f"$((${{WORKERS_PER_CORE:-1}} * {repository.cores}))"
    workers = "".join(Shell(said, cores=repository.cores).words(f"x {workers}")[1:])
    workers = workers if "WEB_CONCURRENCY" in said or not workers.isdecimal() else str(max(int(workers), 2))
    worker_class = said.get("WORKER_CLASS", "uvicorn.workers.UvicornWorker")
    folder = repository.folder_of("/app", start.image)
    words = ["gunicorn", "--worker-class", worker_class, "--workers", workers, app]
    return replace(start, words=words, folder=folder, place=f"{start.place}, its base image {base.partition(':')[0]}")


def _context(repository: Repository, path: Path, stage: "_Stage") -> Path:
    """Return the folder that a Dockerfile is built from: the one that has what it copies."""
    sources = [source.lstrip("/") for source, _ in stage.copies if source.strip("./")]
    own = {".py", ".toml", ".txt"} & {file.suffix for file in path.parent.iterdir()}
    candidates = [path.parent, *path.parent.parents] if own else [*reversed([path.parent, *path.parent.parents])]
    inside = [folder for folder in candidates if folder.is_relative_to(repository.folder)]
    return max(inside, key=lambda folder: sum((folder / source).exists() for source in sources))


def _split_heredocs(text: str) -> tuple[str, dict[str, str]]:
    """Return a Dockerfile without its here-documents, and their texts by the words that then open them.

    Several documents may have the same word, so each word gets a number.
    """
    kept: list[str] = []
    written: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        opened = re.match(r"\s*(?:RUN|COPY|ADD)\b", line, re.IGNORECASE) and [
            found[2] for found in _HEREDOC.finditer(line)
        ]
        place = len(kept)
        kept.append(line)
        for word in opened or []:
            inner: list[str] = []
            for each in lines:
                kept.append("")
                if each.strip() == word:
                    break
                inner.append(each)
            named = f"{word}_{len(written)}"
            kept[place] = re.sub(rf"(<<-?\s*[\"']?){word}\b", rf"\g<1>{named}", kept[place], count=1)
            written[named] = "\n".join(inner) + "\n"
    return "\n".join(kept) + "\n", written


@dataclass
class _Stage:
    """A stage of a Dockerfile, as far as it was read. ``base`` is its image."""

    base: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    """What ARG says. It is known when the image is built, and not when it runs."""
    folder: str = "/"
    copies: list[tuple[str, str]] = field(default_factory=list)
    sources: list["_Stage"] = field(default_factory=list)
    """The stages that it copies from."""
    installs: Installs = field(default_factory=Installs)
    written: dict[str, str] = field(default_factory=dict)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    place: str = ""

    @property
    def has_python(self) -> bool:
        """Whether packages of Python are installed there: by a command, or perhaps by a script."""
        return self.installs.python or "python" in self.base

    @property
    def words(self) -> list[str]:
        """The words of the command that a container starts."""
        return [*self.entrypoint, *self.command]

    def copy(self, value: str, stages: Mapping[str, "_Stage"], written: Mapping[str, str]) -> None:
        """Take a COPY: from the repository, of what another stage has copied, or of a text in the Dockerfile."""
        with suppress(ValueError):
            words = [_interpolated(word, Shell(self.arguments | self.environment)) for word in _listed_or_split(value)]
            source = next((word.partition("=")[2] for word in words if word.startswith("--from=")), "")
            *paths, target = [word for word in words if not word.startswith("--")]
            there = str(PurePosixPath(self.folder) / target)
            texts = [written.get(found[2], "") for path in paths if (found := _HEREDOC.match(path))]
            if texts:
                self.written = {**self.written, there: texts[0]}
            elif not source:
                self.copies += [(path, there) for path in paths]
            elif source in stages:
                self.sources.append(stages[source])
                self.copies += [(ours, _place_within(where, path, there)) for path in paths
                                for ours, where in stages[source].copies
                                if PurePosixPath(where).is_relative_to(path)]  # fmt: skip

    def take(self, instruction: str, value: str, place: str, arguments: Mapping[str, str], cores: int) -> None:
        """Take one instruction of the Dockerfile. ``arguments`` are those of the build."""
        shell = Shell(self.arguments | self.environment, cores=cores)
        match instruction:
            case "ENV":
                pairs = _pairs(value, shell)
                self.environment |= pairs
                known = {name: each for name, each in pairs.items() if not re.search(r"\$\{?\w", each)}
                self.given = {**self.given, **known}
                self.installs += indexes_of(pairs, place)
            case "ARG":
                said = _pairs(value, shell) | {
                    name: arguments[name] for name in [value.partition("=")[0]] if name in arguments
                }
                self.arguments = self.arguments | said
            case "WORKDIR":
                self.folder = str(PurePosixPath(self.folder) / _interpolated(value.strip("\"'"), shell))
            case "RUN":
                self.installs += installs_of(shell.run(value), place)
            case "ENTRYPOINT":
                self.entrypoint, self.command, self.place = _form(value), [], place
            case "CMD":
                self.command, self.place = _form(value), self.place if self.entrypoint and self.place else place


def _script(value: str, written: Mapping[str, str]) -> str:
    """Return the script of a RUN in any of its forms. ``written`` are the here-documents of the Dockerfile."""
    value = re.sub(r"^(?:--\S+\s+)+", "", value)
    if opened := _HEREDOC.match(value):
        return written.get(opened[2], "")
    words = _form(value)
    return words[2] if words[:2] == ["/bin/sh", "-c"] else shlex.join(words)


def _place_within(where: str, path: str, there: str) -> str:
    """Return where a part of a folder lies in the image that copies the whole folder."""
    return str(PurePosixPath(there) / PurePosixPath(where).relative_to(path))


def _listed_or_split(value: str) -> list[str]:
    """Return the words of a COPY in either of its forms."""
    words = _form(value)
    return shlex.split(value) if words[:1] == ["/bin/sh"] else words


def _form(value: str) -> list[str]:
    """Return the words of a CMD in its exec form, or the shell that its shell form starts."""
    with suppress(ValueError):
        listed = json.loads(value)
        if isinstance(listed, list):
            return [str(word) for word in listed]
    return ["/bin/sh", "-c", value]


def _pairs(value: str, shell: Shell) -> dict[str, str]:
    """Return the variables of ENV or ARG: ``A=1 B="two words"``, or ``A two words``."""
    name, _, rest = value.partition(" ")
    if "=" not in name:
        return {name: _interpolated(rest.strip(), shell)} if rest else {}
    with suppress(ValueError):
        return {name: _interpolated(text, shell) for name, _, text in
                (word.partition("=") for word in shlex.split(value)) if name}  # fmt: skip
    return {}


def _interpolated(text: str, shell: Shell) -> str:
    """Return a text with variables in their place, as Docker and Compose put them there."""
    text = re.sub(r"\$\{[^{}]*\}|\$\w+", lambda found: shell.expand(found[0]), text.replace("$$", "\0"))
    return text.replace("\0", "$")


def compose_starts(repository: Repository) -> list[Start]:
    """Return what the Compose files of a repository start, those for production first."""
    paths = repository.files("compose*.y*ml", "docker-compose*.y*ml", "docker_compose*.y*ml")
    paths = [path for path in paths if "override" not in path.name]
    paths += [path for path in _included(repository, paths) if path not in paths]
    within = {path: str(path.relative_to(repository.folder)) for path in paths}
    paths = [path for path in paths if not FOR_DEVELOPMENT.search(within[path])] or paths
    said = {path: _services(repository, path) for path in paths}
    found: list[Start] = []
    for path in sorted(_by_purpose(paths, repository), key=lambda path: not _FOR_PRODUCTION.search(path.name)):
        base = _base(path, said) if _FOR_PRODUCTION.search(path.name) else None
        services = _added(said[base], said[path]) if base else said[path]
        for name, each in services.items():
            if each.get("build") or each.get("command") or each.get("entrypoint"):
                try:
                    started = _service(repository, path, name, services)
                    found += (replace(each, compose=_with_images(each, base or path, path, said)) for each in started)
                except (AttributeError, TypeError):  # what the file says has another form
                    place = path.relative_to(repository.folder)
                    repository.problems.append(f"{place}: the lab does not know the form of the service {name}")
    return found


def _included(repository: Repository, paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of the repository that Compose files include."""
    for path in paths:
        with suppress(AttributeError, TypeError):
            for each in [include for said in repository.documents(path)[:1] for include in said.get("include") or []]:
                said = each.get("path") if isinstance(each, dict) else each
                names = said if isinstance(said, list) else [said]
                yield from (path.parent / str(name) for name in names if (path.parent / str(name)).is_file())


def _base(path: Path, said: Mapping[Path, dict[str, dict[str, Any]]]) -> Path | None:
    """Return the file that a file for production adds to; None: it stands alone."""
    beside = (other for other in said if other.parent == path.parent and not _FOR_PRODUCTION.search(other.name))
    return next(beside, None)


def _added(base: Mapping[str, dict[str, Any]], said: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the services of a file that adds to another file. Variables are added one by one."""
    return {**base, **{name: _merged(base.get(name, {}), each) for name, each in said.items()}}


def _merged(base: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service that adds to another service."""
    variables = _variables(base.get("environment")) | _variables(said.get("environment"))
    return {**base, **said, **({"environment": variables} if variables else {})}


def _with_images(start: Start, base: Path, path: Path, said: Mapping[Path, dict[str, dict[str, Any]]]) -> str:
    """Return which of two Compose files has the images of the services beside a start, as its start names files."""
    has_all = all({"image", "build"} & {*said[path].get(name, {})} for name in start.beside)
    return start.compose if has_all else f"{PurePosixPath(start.compose).with_name(base.name)}"


def _services(repository: Repository, path: Path) -> dict[str, dict[str, Any]]:
    named = _stated_services(repository, path)
    return {name: _extended(repository, path, said, named, ()) for name, said in named.items()}


def _stated_services(repository: Repository, path: Path) -> dict[str, dict[str, Any]]:
    with suppress(AttributeError):
        services = (next(iter(repository.documents(path)), None) or {}).get("services") or {}
        return {str(name): said for name, said in services.items() if isinstance(said, dict)}
    repository.note_unread(path, "this Compose file cannot be read")
    return {}


def _extended(
    repository: Repository, path: Path, said: dict[str, Any], services: Mapping[str, dict[str, Any]],
    extending: tuple[int, ...],
) -> dict[str, Any]:  # fmt: skip
    """Return a service with what it takes from the service that it extends, of its own file or of another."""
    if id(said) in extending:
        repository.note_unread(path, "a service of this Compose file extends itself")
        return said
    extends = said.get("extends")
    of = {"service": extends} if isinstance(extends, str) else extends or {}
    file = path.parent / str(of.get("file", path.name))
    if not of or (file.resolve() == path.resolve() and of.get("service") not in services):
        return said
    if not file.is_file():
        repository.problems.append(f"{path.relative_to(repository.folder)}: {of['file']} is not in the repository")
        return said
    others = services if file.resolve() == path.resolve() else _stated_services(repository, file)
    base = others.get(str(of.get("service")), {})
    return _merged(_extended(repository, file, base, others, (*extending, id(said))), said)


def _service(repository: Repository, path: Path, name: str, services: Mapping[str, dict[str, Any]]) -> list[Start]:
    """Return what a service of a Compose file starts."""
    said, place = services[name], str(path.relative_to(repository.folder))
    of_compose = variables_of_env_file(repository.text(path.parent / ".env"))
    shell = Shell(of_compose, cores=repository.cores)
    start = _image_of_service(repository, path, said, shell)
    environment = {name: _interpolated(value, shell) for name, value in _variables(said.get("environment")).items()}
    # values of .env may be secrets, which stay there
    named = Shell({name: value and f"${{{name}}}" for name, value in of_compose.items()}, cores=repository.cores)
    written = {name: _interpolated(value, named) for name, value in _variables(said.get("environment")).items()}
    files, problems = _files_of_variables(repository.folder, path, place, said)
    further = [path.parent.resolve() / ".env"] if written != environment else []
    unknown = [variable for variable, value in environment.items() if re.search(r"\$\{?\w", value)]
    passed = [name for name in _passed(said.get("environment")) if OF_SERVER.match(name) and name not in of_compose]
    problems += [f"{place}: {variable}: the value is not in the repository" for variable in passed]
    unread = next((f"{place} says {name}" for name in (*passed, *unknown) if OF_SERVER.match(name)), "")
    for variable in unknown:
        problems.append(f"{place}: {variable} is {environment.pop(variable)}: the value is not in the repository")
    if said.get("working_dir"):
        start = replace(start, folder=repository.folder_of(str(said["working_dir"]), start.image))
    replicas = _interpolated(str((said.get("deploy") or {}).get("replicas") or said.get("scale") or ""), shell)
    if replicas and not replicas.isdecimal():
        problems.append(f"{place}: replicas {replicas}: the value is not in the repository")
    given = {key: written[key] for key in environment if not NOT_OF_THE_SERVICE.match(key)}
    variables = {name: value for file in files for name, value in variables_of_env_file(repository.text(file)).items()}
    words = _words_of(said, start, shell)
    key = next((key for key in ("command", "entrypoint") if said.get(key) is not None), "")
    found = follow(replace(
        start, words=words, place=f"{place}:{_line(repository.text(path), name, key)}" if key else start.place,
        environment={**start.environment, **variables, **environment}, given={**start.given, **given},
        replicas=int(replicas) if replicas.isdecimal() else None, compose=place,
        beside=_beside(repository, path, said, services), unread=unread, problems=tuple(problems),
        env_files=tuple(dict.fromkeys([*further, *files])),
        before=(*start.before, *_jobs(said, services, place)),
    ), repository)  # fmt: skip
    return [each for each in found if each.server or said.get("build")]


def _passed(said: object) -> Iterator[str]:
    """Yield the variables that Compose passes on from where it runs."""
    for name, value in said.items() if isinstance(said, dict) else []:
        if value is None:
            yield str(name)
    yield from (str(each) for each in said if "=" not in str(each)) if isinstance(said, list) else ()


def _words_of(said: Mapping[str, Any], start: Start, shell: Shell) -> list[str]:
    """Return the words of a service's command, which takes the place of that of its image."""
    if said.get("command") is None and said.get("entrypoint") is None:
        return start.words
    entrypoint = [*start.image.entrypoint] if said.get("entrypoint") is None else _listed(said["entrypoint"], shell)
    return [*entrypoint, *_listed(said.get("command"), shell)]


def _beside(
    repository: Repository, path: Path, said: Mapping[str, Any], services: Mapping[str, dict[str, Any]]
) -> tuple[str, ...]:
    """Return the services that a service needs, such as a database: images, or builds that start no Python server."""

    def serves(other: Mapping[str, Any]) -> bool:
        image = _image_of_service(repository, path, other, Shell({}))
        return any(start.server for start in follow(image, repository))

    needed = {name: services.get(name, {}) for name in said.get("depends_on") or []}
    others = {name: other for name, other in needed.items() if _is_other(other, said)}
    return tuple(name for name, other in others.items() if not other.get("build") or not serves(other))


def _is_other(other: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    """Return whether a service has another image than a service."""
    pairs = [(other.get(key), said.get(key)) for key in ("build", "image") if other.get(key)]
    return bool(pairs) and all(own != theirs for own, theirs in pairs)


def _jobs(said: Mapping[str, Any], services: Mapping[str, dict[str, Any]], place: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of services that run in the image of a service, and end before it starts."""
    after = said.get("depends_on") or []
    for name in after:
        other = services.get(name, {})
        condition = (after[name] or {}).get("condition") if isinstance(after, dict) else ""
        ends = condition == "service_completed_successfully" or str(other.get("restart")) in ("no", "False")
        command = shlex.join(_listed(other.get("command"), Shell({})))
        if command and not _is_other(other, said) and (ends or preparing(command)):
            yield preparing(command) or command, f"{place}, {name}"


def _files_of_variables(folder: Path, path: Path, place: str, said: Mapping[str, Any]) -> tuple[list[Path], list[str]]:
    """Return the env files of a service that the repository has, and what is to be said of the others."""
    listed = said.get("env_file") or []
    names = [str(each.get("path", "") if isinstance(each, dict) else each)
             for each in ([listed] if isinstance(listed, str) else listed)]  # fmt: skip
    files = []
    problems = []
    for name in names:
        there = (path.parent / name).resolve()
        if not there.is_relative_to(folder.resolve()):
            problems.append(f"{place}: the env_file {name} is outside the folder, so it is left out")
        elif there.is_file():
            files.append(there)
        else:
            examples = sorted(file.name for file in (path.parent / name).parent.glob(f"{PurePosixPath(name).name}*"))
            shown = f"; {examples[0]} may show what is in it" if examples else ""
            problems.append(f"{place}: the env_file {name} is not in the repository{shown}")
    return files, problems


def _image_of_service(repository: Repository, path: Path, said: Mapping[str, Any], shell: Shell) -> Start:
    """Return what the image that a service is built from starts."""
    build = said.get("build")
    build = {"context": build} if isinstance(build, str) else build or {}
    context = (path.parent / _interpolated(str(build.get("context", ".")), shell)).resolve()
    file = (context / str(build.get("dockerfile", "Dockerfile"))).resolve()
    place = str(path.relative_to(repository.folder))
    if not build or not file.is_file() or not file.is_relative_to(repository.folder.resolve()):
        is_inside = bool(build) and context.is_dir() and context.is_relative_to(repository.folder)
        return Start([], context if is_inside else repository.folder, place)
    arguments = {name: _interpolated(value, shell) for name, value in _variables(build.get("args")).items()}
    return image_of(repository, file, context, str(build.get("target", "")), arguments)


def _line(text: str, service: str, key: str) -> int:
    """Return the line of a key of a service in a Compose file; of the service, if it inherits the key."""
    at, indent = 1, 0
    for number, line in enumerate(text.splitlines(), start=1):
        if at == 1 and (begins := re.match(rf"(  ?(?:  )?){re.escape(service)}\s*:", line)):
            at, indent = number, len(begins[1])
        elif at > 1 and re.match(rf" {{0,{indent}}}[^\s#]", line):
            return at
        elif at > 1 and re.match(rf"\s+{key}\s*:", line):
            return number
    return at


def _listed(command: object, shell: Shell) -> list[str]:
    """Return the words of a command in a Compose file, with the variables that Compose knows in their place."""
    if isinstance(command, list):
        return [_interpolated(str(word), shell) for word in command]
    with suppress(ValueError):
        return shlex.split(_interpolated(str(command or ""), shell))
    return []


def _variables(said: object) -> dict[str, str]:
    if isinstance(said, list):
        return {name: value for name, equals, value in (str(each).partition("=") for each in said) if equals}
    if isinstance(said, dict):
        return {str(name): str(value) for name, value in said.items() if value is not None}
    return {}
