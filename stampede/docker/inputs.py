"""Find what an image of the lab is made of: the stages of its Dockerfile, and the files that these stages copy."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

from stampede.paths import ROOT
from stampede.servers.services import filled, services

_STAGE = re.compile(r"^FROM (\S+)(?: AS (\S+))?$", re.MULTILINE)
_COPY = re.compile(r"^COPY ((?:--\S+ )*)(.+) \S+$", re.MULTILINE)
_FROM_STAGE = re.compile(r"\bfrom=([\w-]+)")


def inputs_digest(service: str, factors: Mapping[str, str], base: str) -> str:
    """Return a digest of a service's image: of its stages, files and build arguments, and the base image's layers."""
    build = services()[service]["build"]
    arguments = {name: filled(str(value), factors) for name, value in build.get("args", {}).items()}
    stages = stages_of(build["dockerfile"], build.get("target"))
    digest = hashlib.sha256(json.dumps([base, arguments, stages]).encode())
    for path in files_of(stages, arguments):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def stages_of(dockerfile: str, target: str | None) -> list[str]:
    """Return the text of the target stage (default: the last stage), and of each stage that it takes files from."""
    text = (ROOT / dockerfile).read_text(encoding="utf-8").replace("\\\n", "")
    found = list(_STAGE.finditer(text))
    ends = [stage.start() for stage in found[1:]] + [len(text)]
    known = {stage[2] or "": (stage[1], text[stage.start() : end]) for stage, end in zip(found, ends, strict=True)}
    needed, chosen = [target or found[-1][2] or ""], []
    while needed:
        if stage := known.pop(needed.pop(), None):
            chosen.append(stage[1])
            needed += [stage[0], *_FROM_STAGE.findall(stage[1])]
    return chosen


def files_of(stages: list[str], arguments: Mapping[str, str]) -> list[Path]:
    """Return the files of the checkout that stages copy. Raise FileNotFoundError if a copied file does not exist."""
    files: set[Path] = set()
    for stage in stages:
        for copy in _COPY.finditer(stage):
            for source in filled(copy[2], arguments).split():
                matching = list(ROOT.glob(source.rstrip("/")))
                if not matching:
                    raise FileNotFoundError(f"{source} is copied into an image, but does not exist")
                for path in matching:
                    files |= {path} if path.is_file() else {file for file in path.rglob("*") if file.is_file()}
    return sorted(path for path in files if "__pycache__" not in path.parts)
