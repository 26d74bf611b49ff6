"""Which laptops of a class differ from the others, and what is different about them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log
from statistics import median
from typing import NamedTuple

from stampede.teach.classroom.strips import Dot, Laptop, Strip, SubmittedRun

FEW = 5
"""With fewer values than this, no value is called far from the others."""
FAR = 3.5
"""A value is far from the median from this many robust standard deviations on (Iglewicz and Hoaglin 1993)."""
NEAR = {"ms": 20.0, "share": 0.02, "index": 0.02}
"""Differences up to this, in the unit of the value, are not called far, however close the other values are."""
NEAR_RATIO = 1.25
"""Nor are values that differ from the median by less than this factor."""
TELLING = 1 / 3
"""What is different about a laptop is named if laptops like it differ more often than others, by this share or more."""
_KINDS_OF_KERNEL = {"microsoft": "WSL2", "linuxkit": "Docker Desktop", "orbstack": "OrbStack"}
_PLAIN = re.compile(r"[^\w .,:+~()@/-]")


class Outlier(NamedTuple):
    """How a laptop differs from the class in a strip: by its verdict, by its value, or by both."""

    strip: Strip
    dot: Dot
    by_verdict: bool
    by_value: bool


class Differing(NamedTuple):
    """A laptop that differs from the class in an experiment, in what, and why that may be; the best reason first."""

    laptop: Laptop
    outliers: list[Outlier]
    reasons: list[str]


def differing(laptops: Sequence[Laptop], experiment: str, strips: Sequence[Strip]) -> list[Differing]:
    """Return the laptops that differ from the class in an experiment."""
    there = {laptop.number: laptop for laptop in laptops if experiment in laptop.runs}
    found: dict[int, list[Outlier]] = {}
    for strip in strips:
        for standing in outliers(strip):
            found.setdefault(standing.dot.laptop, []).append(standing)
    facets = {number: dict(traits(laptop.runs[experiment])) for number, laptop in there.items()}
    return [
        Differing(there[number], found[number], find_reasons(number, set(found), facets)) for number in sorted(found)
    ]


def outliers(strip: Strip) -> list[Outlier]:
    """Return the laptops whose verdict is not the verdict of most, or whose value is far from the median."""
    far = far_from_median(strip.values, strip.unit)
    return [
        Outlier(strip, dot, dot.verdict != strip.most, dot.laptop in far)
        for dot in strip.dots
        if dot.verdict != strip.most or dot.laptop in far
    ]


def far_from_median(values: Mapping[int, float], unit: str) -> set[int]:
    """Return whose value is far from the median, on logarithms if all values are positive."""
    if len(values) < FEW:
        return set()
    scaled = all(value > 0 for value in values.values())
    places = {laptop: log(value) if scaled else value for laptop, value in values.items()}
    middle, plain = median(places.values()), median(values.values())
    spread = 1.4826 * median(abs(place - middle) for place in places.values())
    far = set()
    for laptop, place in places.items():
        low, high = sorted((abs(values[laptop]), abs(plain)))
        is_near = values[laptop] * plain >= 0 and high <= NEAR_RATIO * low
        if abs(place - middle) > FAR * spread and not is_near and abs(values[laptop] - plain) > NEAR.get(unit, 0.0):
            far.add(laptop)
    return far


def find_reasons(laptop: int, differ: set[int], facets: Mapping[int, Mapping[str, str]]) -> list[str]:
    """Return what is different about a laptop: what fewer than half of the laptops that do not differ have, too.

    Each reason says whether laptops like it differ; the one first with which they differ most often.
    """
    others = {number: facets[number] for number in facets if number not in differ} or {
        number: facets[number] for number in facets if number != laptop
    }
    found = []
    for name, value in facets[laptop].items():
        theirs = Counter(values.get(name, "–") for values in others.values())
        if not others or theirs[value] * 2 >= len(others):
            continue
        same = {number for number in facets if facets[number].get(name, "–") == value}
        rest = facets.keys() - same
        weight = len(same & differ) / len(same) - (len(rest & differ) / len(rest) if rest else 0)
        values = [other for other, _ in theirs.most_common()]
        told = ", ".join(values[:3]) + (" …" if len(values) > 3 else "")
        like = f"{len(same & differ)} of {len(same)} like this differ, {len(rest & differ)} of {len(rest)} others"
        if weight >= TELLING:
            found.append((weight, f"{name}: {value}; the others: {told} ({like})"))
    return [reason for _, reason in sorted(found, key=lambda each: -each[0])]


def traits(handed: SubmittedRun) -> Iterator[tuple[str, str]]:
    """Yield what may make laptops differ, as names and values; nothing in a value is anybody's own words."""
    run, summary, _ = handed
    host = run.host
    yield "cores", str(run.cores)
    modes = {load.settings["CPU"] for load in run.loads if load.settings.get("CPU") in ("hold", "burn")}
    yield "CPU mode", " and ".join(sorted(modes)) or "requests sleep"
    yield "trials", str(run.trials)
    yield "duration", ", ".join(dict.fromkeys(plain(load.duration) for load in run.loads))
    yield "full durations", "yes" if run.full else "no"
    judged = Counter(trial.verdict for trial in summary.trials)
    doubtful = [f"{count} {verdict}" for verdict, count in sorted(judged.items(), reverse=True) if verdict != "valid"]
    yield "doubtful trials", f"{' and '.join(doubtful)} of {len(summary.trials)}" if doubtful else "none"
    yield "method", str(run.method)
    yield "side by side", str(run.jobs)
    yield "outcome", run.outcome
    yield "machines", str(len(run.machines) or 1)
    yield "processor", plain(host.cpu)
    yield "memory", f"{host.memory_gib:.0f} GiB"
    yield "kernel", kernel_name(host.kernel)
    yield "engine", plain(host.engine)
    yield "Compose", plain(host.compose)
    committed = run.git and re.fullmatch(r"[0-9a-f]{7,64}", run.git.commit)
    yield "lab", committed[0][:8] if committed else "no git checkout"
    yield "lab's files", "changed" if run.git and run.git.dirty else "as committed"
    versions: dict[str, list[str]] = {}
    for image in run.images:
        repository = image.name.partition(":")[0]
        if repository in ("debian", "grafana/k6"):
            yield f"image {repository}", "stand-in" if image.stand_in else "as published"
        elif not repository.startswith("stampede/"):
            continue
        for program, version in image.programs.items():
            versions.setdefault(f"{plain(program)} in {plain(repository)}", []).append(plain(version))
    for name, found in versions.items():
        yield name, ", ".join(dict.fromkeys(sorted(found)))


def kernel_name(told: str) -> str:
    """Return a kernel's name and version, without what somebody who built it may have added."""
    version = re.match(r"[A-Za-z]+ [\d.]+\d", told)
    kind = next((kind for word, kind in _KINDS_OF_KERNEL.items() if word in told.lower()), "")
    return f"{version[0] if version else 'unknown'}{f' ({kind})' if kind else ''}"


def plain(text: str) -> str:
    """Return a text of a record as at most 60 plain characters."""
    return _PLAIN.sub("", text)[:60]
