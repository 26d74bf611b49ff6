"""What the last stage of a Dockerfile has and starts."""

import io
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path, PurePosixPath

from dockerfile_parse import DockerfileParser

from stampede.service.discovery.repository import Image, Repository, Start
from stampede.service.discovery.requirements import installs_python

FOR_DEVELOPMENT = re.compile(
    r"(^|[._/-])(override|dev|devel|development|local|debug|(unit)?tests?|ci|e2e|docs?|examples?|devcontainer)([._/-]|$)"
)
FOR_PRODUCTION = re.compile(r"(^|[._/-])(prod|production|deploy|release)([._/-]|$)")
PREPARES = re.compile(
    r"(?:python[\d.]*\s+)?(?:[^\s=]*/)?manage\.py\s+(?:migrate|collectstatic|compress|createcachetable)\b|"
    r"\balembic\b.*\bupgrade\b|\bflask\b.*\b(?:db upgrade|init-?db)\b|\bdjango-admin (?:migrate|collectstatic)\b"
)
"""A command that prepares an application before it is served, without what stands ahead, such as ``uv run``."""
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>\w+)(?:(?P<operator>:?[-+])(?P<other>[^{}]*))?\})")


def preparing(text: str) -> str:
    """Return the part of a command that prepares an application; empty: it prepares none."""
    found = PREPARES.search(text)
    return text[found.start() :] if found else ""


def as_text(words: Sequence[str]) -> str:
    """Return the words of a command as a text for a shell."""
    is_text = len(words) == 3 and words[0] in ("sh", "/bin/sh") and words[1] == "-c"
    return words[2] if is_text else shlex.join(words)


def by_purpose(paths: Sequence[Path], repository: Repository) -> list[Path]:
    """Return files for production first, and files for development last."""

    def key(path: Path) -> tuple[bool, int, bool]:
        name = repository.name(path).lower()
        return bool(FOR_DEVELOPMENT.search(name)), name.count("/"), not FOR_PRODUCTION.search(name)

    return sorted(paths, key=key)


def docker_images(repository: Repository) -> list[Start]:
    """Return what the Dockerfiles of a repository state, the one that counts most first."""
    paths = repository.files("Dockerfile*", "*.Dockerfile", "*.dockerfile", "Containerfile*")
    named = [path for path in paths if path.suffix not in (".md", ".txt", ".dockerignore", ".j2", ".py")]
    return [image_of(repository, path) for path in by_purpose(named, repository)]


@dataclass
class _Stage(Start):
    """A stage of a Dockerfile, as far as it was read. ``base`` is its image; ``sources`` are what it copies from.

    ``arguments`` are what ARG says, which is not known when the image runs. ``made`` are the folders of WORKDIR and
    mkdir. ``has_command``: CMD stands in this stage itself, so that an ENTRYPOINT after it keeps it. What an
    instruction adds makes a new value, so that stages which begin with this one keep theirs.
    """

    base: str = ""
    made: Sequence[str] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    sources: Sequence["_Stage"] = ()
    shell: Sequence[str] = ("/bin/sh", "-c")
    has_command: bool = False

    @property
    def copied(self) -> list[tuple[str, str]]:
        """What was copied, when the stage ends: a target that any of its instructions has made is a folder."""
        return [(source, f"{there}/" if there in self.made else there) for source, there in self.image.copies]


def image_of(  # noqa: PLR0912, PLR0915  # a case for each instruction
    repository: Repository, path: Path, context: Path | None = None, target: str = "",
    arguments: Mapping[str, str] | None = None,
) -> Start:  # fmt: skip
    """Return what the last stage of a Dockerfile, or the stage that is named, has and starts.

    ``context`` is the folder that it is built from, and ``arguments`` are those of the build.
    """
    name = repository.name(path)
    text, written = _split_heredocs(repository.text(path))
    stages: dict[str, _Stage] = {}
    stage = _Stage()
    common: dict[str, str] = {}
    before: list[tuple[str, str]] = []
    for step in DockerfileParser(fileobj=io.BytesIO(text.encode())).structure:  # type: ignore[arg-type]  # it takes bytes
        value, place = step["value"], f"{name}:{step['startline'] + 1}"
        known = {**stage.arguments, **stage.given}
        match step["instruction"]:
            case "FROM":
                source, _, alias = re.sub(r"--platform=\S+\s+", "", filled(value, common)).partition(" ")
                under = stages.get(source, _Stage(base=source))
                stage = replace(under, image=replace(under.image), arguments=common, has_command=False)
                stages[alias.split()[-1] if alias else str(len(stages))] = stage
            case "ARG":
                own = value.partition("=")[0]
                given = {key: said for key, said in (arguments or {}).items() if not stages or key == own}
                stage.arguments = {**stage.arguments, **_pairs(value, known), **given}
                common = common if stages else stage.arguments
            case "ENV":
                pairs = _pairs(value, known)
                stage.given = {**stage.given, **{key: each for key, each in pairs.items() if "$" not in each}}
                stage.image.runs = [*stage.image.runs, *((place, ["ENV", key]) for key in pairs)]
            case "WORKDIR":
                stage.folder = str(PurePosixPath(stage.folder) / filled(value.strip("\"'"), known))
                stage.made = [*stage.made, stage.folder]
            case "SHELL":
                stage.shell = _form(value)
            case "COPY" | "ADD":
                _copy(stage, value, stages, written)
            case "RUN":
                value = re.sub(r"^(?:--\S+\s+)+", "", value)
                words = _form(value)
                script = words[2] if words[:2] == ["/bin/sh", "-c"] else shlex.join(words)
                opened = _HEREDOC.match(value)
                for words in commands_of(written.get(opened[2], "") if opened else script, known):
                    stage.image.runs = [*stage.image.runs, (place, words)]
                    named = [word for word in words[1:] if not word.startswith("-")]
                    there = [PurePosixPath(stage.folder) / word for word in named]
                    if words[:1] == ["mkdir"]:
                        stage.image.folders = [*stage.image.folders, *map(str, there)]
                        stage.made = [*stage.made, *map(str, there)]
                    if words[:1] in (["cp"], ["mv"]) and len(named) == 2 and there[0].suffix:  # an example of settings
                        copied = [(str(PurePosixPath(ours) / there[0].relative_to(where)), str(there[1]))
                                  for ours, where in stage.image.copies if there[0].is_relative_to(where)]  # fmt: skip
                        stage.image.copies = [*stage.image.copies, *copied[-1:]]
                    if command := preparing(shlex.join(words)):
                        variables = [word for word in words if re.fullmatch(r"[A-Za-z_]\w*=[^\s$]*", word)]
                        before.append((" ".join([*variables, command]), place))
            case "ENTRYPOINT":
                stage.entrypoint, stage.place = _form(value, stage.shell), place
                stage.command = stage.command if stage.has_command else []
            case "CMD":
                stage.command, stage.has_command = _form(value, stage.shell), True
                stage.place = stage.place if stage.entrypoint and stage.place else place
    last = next((key for key, each in stages.items() if each is stage), "").lower()
    if not target and FOR_DEVELOPMENT.search(last):
        others = [key for key in reversed([*stages]) if not FOR_DEVELOPMENT.search(key.lower())]
        others = [key for key in others if stages[key].words]
        target = next((key for key in others if FOR_PRODUCTION.search(key.lower())), next(iter(others), ""))
    stage = stages.get(target, stage)
    for other in stage.sources:
        if "python" in other.base or any(installs_python(words) for _, words in other.image.runs):
            stage.image.runs = [*stage.image.runs, *other.image.runs]
    stage.file, stage.place, stage.before = name, stage.place or name, before
    stage.image = replace(
        stage.image, dockerfile=path, place=stage.place, context=context or _context(repository, path, stage.image),
        copies=stage.copied, python="".join(re.findall(r"\bpython:?(\d\.\d+)", stage.base)[:1]),
    )  # fmt: skip
    return stage


def _copy(stage: _Stage, value: str, stages: Mapping[str, _Stage], written: Mapping[str, str]) -> None:
    """Take a COPY: from the repository, of what another stage has copied, or of a text in the Dockerfile."""
    with suppress(ValueError):
        words = _form(value)
        listed = shlex.split(value) if words[:1] == ["/bin/sh"] else words
        named = [filled(word, {**stage.arguments, **stage.given}) for word in listed]
        source = next((word.partition("=")[2] for word in named if word.startswith("--from=")), "")
        *paths, target = [word for word in named if not word.startswith("--")]
        there = str(PurePosixPath(stage.folder) / target).rstrip("/")
        copied: list[tuple[str, str]] = []
        if texts := [written.get(found[2], "") for path in paths if (found := _HEREDOC.match(path))]:
            stage.image.written = {**stage.image.written, there: texts[0]}
        elif not source:
            is_folder = target.endswith(("/", ".")) or len(paths) > 1
            copied = [(path, f"{there}/" if is_folder else there) for path in paths]
        elif source in stages:
            stage.sources = [*stage.sources, stages[source]]
            for path, (ours, where) in product(paths, stages[source].copied):
                if PurePosixPath(where).is_relative_to(path):
                    slash = "/" if where.endswith("/") else ""
                    copied.append((ours, f"{PurePosixPath(there, os.path.relpath(where, path))}{slash}"))
        stage.image.copies = [*stage.image.copies, *copied]


def commands_of(script: str, known: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the commands of a script of RUN, in the order in which they stand there."""
    lines = re.sub(r"^\s*#.*\n?|`#[^`]*`", "", script, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    known = dict(known)
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split, lexer.commenters = True, ""
        words: list[str] = []
        with suppress(ValueError):  # a part of a text in quotes over several lines
            for word in [*lexer, ";"]:
                if not re.fullmatch(r"[;&|]+", word):
                    words.append(word)
                    continue
                while words and words[0] in ("then", "do", "else", "if", "!", "{", "(", "sudo"):
                    words.pop(0)
                if words and all(re.match(r"[A-Za-z_]\w*=", each) for each in words):
                    pairs = (each.partition("=") for each in words)
                    known |= {name: filled(value, known) for name, _, value in pairs}
                elif words:
                    yield [part for each in words for part in (filled(each, known).split() if "$" in each else [each])]
                words = []


def filled(text: str, known: Mapping[str, str]) -> str:
    """Return a text with variables in their place, as Docker puts them there; an unknown one stays."""

    def value(found: re.Match[str]) -> str:
        name, operator, otherwise = found["plain"] or found["name"], found["operator"] or "", found["other"] or ""
        if operator.endswith("+"):
            return otherwise if known.get(name) else ""
        return known[name] if name in known else otherwise if operator else found[0]

    return _VARIABLE.sub(value, text)


def _context(repository: Repository, path: Path, image: Image) -> Path:
    """Return the folder that a Dockerfile is built from: the one that has what it copies."""
    sources = [source.lstrip("/") for source, _ in image.copies if source.strip("./")]
    own = {".py", ".toml", ".txt"} & {file.suffix for file in path.parent.iterdir()}
    above = [path.parent, *path.parent.parents]
    inside = [folder for folder in (above if own else reversed(above)) if folder.is_relative_to(repository.folder)]
    # Path.exists fails if the name is too long
    return max(inside, key=lambda folder: sum(os.path.exists(folder / source) for source in sources))  # noqa: PTH110


def _split_heredocs(text: str) -> tuple[str, dict[str, str]]:
    """Return a Dockerfile without its here-documents, and their texts by the words that then open them.

    Several documents may have the same word, so each word gets a number.
    """
    kept: list[str] = []
    written: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        place, opened = len(kept), re.match(r"\s*(?:RUN|COPY|ADD)\b", line, re.IGNORECASE)
        kept.append(line)
        for word in [found[2] for found in _HEREDOC.finditer(line)] if opened else []:
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


def _form(value: str, shell: Sequence[str] = ("/bin/sh", "-c")) -> list[str]:
    """Return the words of a CMD in its exec form, or the shell that its shell form starts."""
    with suppress(ValueError):
        listed = json.loads(value)
        if isinstance(listed, list):
            return [str(word) for word in listed]
    return [*shell, value]


def _pairs(value: str, known: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ENV or ARG: ``A=1 B="two words"``, or ``A two words``."""
    name, _, rest = value.partition(" ")
    if "=" not in name:
        return {name: filled(rest.strip(), known)} if rest else {}
    with suppress(ValueError):
        words = (word.partition("=") for word in shlex.split(value))
        return {name: filled(text, known) for name, _, text in words if name}
    return {}
