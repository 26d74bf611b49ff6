"""The page of a class: strips with a dot for each laptop, who differs, and predictions beside results."""

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

from stampede.experiment.model import Experiment
from stampede.records.folder import write_whole
from stampede.records.words import plural
from stampede.report.page import render
from stampede.report.wording import (
    bound_phrase,
    claim_subject,
    metric_phrase,
    number,
    plain_name,
    unit_suffix,
    whole_number,
)
from stampede.teach.classroom.drawing import COLOURS, draw_predictions, draw_strip
from stampede.teach.classroom.outliers import FAR, FEW, NEAR, NEAR_RATIO, Outlier, outliers
from stampede.teach.classroom.predictions import ClassPrediction, collect_predictions
from stampede.teach.classroom.strips import Laptop, Strip, SubmittedRun, strips
from stampede.teach.lesson.notes import Bar

_KINDS_OF_KERNEL = {"microsoft": "WSL2", "linuxkit": "Docker Desktop", "orbstack": "OrbStack"}
_PLAIN = re.compile(r"[^\w .,:+~()@/-]")


class Chapter(NamedTuple):
    """What the page says of one experiment. ``own`` is the lab's own file; ``differing`` goes by laptop."""

    name: str
    own: Experiment
    says: str
    predictions: list[ClassPrediction]
    strips: list[Strip]
    differing: dict[int, list[Outlier]]


def write_class_page(
    target: Path,
    laptops: Sequence[Laptop],
    experiments: Mapping[str, Experiment],
    predictions: Mapping[int, list[tuple[str, Bar]]],
    *,
    left_out: int,
) -> list[Chapter]:
    """Write the page of a class, whole or not at all, and return its chapters, one for each experiment with a run."""
    cores = sorted({handed.run.cores for laptop in laptops for handed in laptop.runs.values()})
    of_cores = dict(zip(cores, cycle(COLOURS), strict=False))
    collected = collect_predictions(predictions)
    chapters = []
    for name, own in experiments.items():
        there = sum(name in laptop.runs for laptop in laptops)
        if not there:
            continue
        made = strips(laptops, name, own)
        differing: dict[int, list[Outlier]] = {}
        for outlier in sorted((each for strip in made for each in outliers(strip)), key=lambda each: each.dot.laptop):
            differing.setdefault(outlier.dot.laptop, []).append(outlier)
        claims = [len(strip.verdicts) for strip in made if strip.claim]
        says = f"{plural(there, 'laptop')}; {claims.count(1)} of {len(claims)} claims have the same verdict on all. "
        if differing:
            names = ", ".join(f"laptop-{number}" for number in differing)
            says += f"{len(differing)} differ{'s' if len(differing) == 1 else ''} from the others: {names}."
        else:
            says += "No laptop differs from the others."
        asked = [found for found in collected if name == f"lesson-{found.step}"]
        chapters.append(Chapter(name, own, says, asked, made, differing))
    rows = {laptop.name: [properties(handed) for handed in laptop.runs.values()] for laptop in laptops}
    page = render(
        "class.html", app="stampede.teach.classroom", laptops=laptops, chapters=chapters, colours=of_cores,
        left_out=left_out, far=FAR, few=FEW, near=NEAR_RATIO,
        near_ms=f"{NEAR['ms']:g}", near_share=f"{NEAR['share']:g}",
        head=[*next(iter(rows.values()))[0]],
        rows={name: [", ".join(dict.fromkeys(values)) for values in zip(*(each.values() for each in of), strict=True)]
              for name, of in rows.items()},
        heading=_heading, what=_what, told=_told, verdicts=_verdicts,
        draw=lambda strip: draw_strip(strip, of_cores, f"{_heading(strip)}. {_told(strip)}"),
        summary=_prediction_summary, how=_how,
        draw_predictions=lambda found: draw_predictions(
            found, f"The class predicted: {found.says}. {_prediction_summary(found)}"
        ),
        has_predictions=any(chapter.predictions for chapter in chapters),
    )  # fmt: skip
    write_whole(target, page)
    return chapters


def properties(handed: SubmittedRun) -> dict[str, str]:
    """Return what may make laptops differ, by name; nothing in a value is anybody's own words."""
    run, _, manifest = handed

    def plain(text: str) -> str:
        return _PLAIN.sub("", text)[:60]

    told = run.host.kernel  # of which somebody may have built an own version
    kernel = re.match(r"[A-Za-z]+ [\d.]+\d", told)
    kind = next((f" ({kind})" for word, kind in _KINDS_OF_KERNEL.items() if word in told.lower()), "")
    modes = {load.settings["CPU"] for load in run.loads if load.settings.get("CPU") in ("hold", "burn")}
    committed = run.git and re.fullmatch(r"[0-9a-f]{7,64}", run.git.commit)
    changed = ", changed" if run.git and run.git.dirty else ""
    gunicorn = {version for image in run.images if (version := image.programs.get("gunicorn"))}
    return {
        "cores": str(run.cores), "processor": plain(run.host.cpu), "memory": f"{run.host.memory_gib:.0f} GiB",
        "kernel": f"{kernel[0] if kernel else 'unknown'}{kind}", "engine": plain(run.host.engine),
        "CPU mode": " and ".join(sorted(modes)) or "requests sleep", "trials": str(run.trials),
        "duration": ", ".join(dict.fromkeys(plain(load.duration) for load in run.loads)),
        "gunicorn": plain(", ".join(sorted(gunicorn))) or "–",
        "lab": f"{committed[0][:8]}{changed}" if committed else "no git checkout",
        "manifests": f"{plain(run.experiment)} {manifest[:8]}",
    }  # fmt: skip


def _prediction_summary(prediction: ClassPrediction) -> str:
    of_unit = unit_suffix(prediction.unit)
    low, high = number(prediction.measured[0]), number(prediction.measured[-1])
    theory = f"; theory: {number(prediction.theory)}{of_unit}" if prediction.theory is not None else ""
    return (
        f"Predicted: {', '.join(map(number, prediction.predictions))}{of_unit}{theory}; "
        f"measured: {number(median(prediction.measured))}{of_unit} ({low} to {high}). "
        f"{prediction.near} of {len(prediction.predictions)} predictions were within a factor of two."
    )


def _heading(strip: Strip) -> str:
    what = _what(strip)
    return strip.says or f"Published: {what[0].lower()}{what[1:]}"


def _what(strip: Strip) -> str:
    """Return in words which number a strip shows, with its unit, and the bound of a claim."""
    named = unit_suffix(strip.unit)
    if strip.claim:
        thing = claim_subject(strip.claim).rstrip(",")
        return f"{thing}{named and ',' + named}; the claim: {bound_phrase(strip.claim)}"
    assert strip.quantity
    quantity = strip.quantity
    of = metric_phrase(quantity.metric, quantity.request_class)
    return (
        f"The {plain_name(strip.stat)} of the {of} in {quantity.variant} under {quantity.load}{named and ',' + named}"
    )


def _told(strip: Strip) -> str:
    """Return the median of the class, and what theory and the article say, in numbers."""
    parts = [f"Median of {len(strip.values)}: {_number(strip, strip.median)}"]
    if strip.predicted:
        low, high = min(strip.predicted), max(strip.predicted)
        parts.append(f"theory: {_number(strip, low)}{f' to {_number(strip, high)}' if high > low else ''}")
    if strip.published is not None:
        parts.append(f"published: {_number(strip, strip.published)}")
    return "; ".join(parts) + "."


def _number(strip: Strip, value: float | None) -> str:
    return number(whole_number(strip.unit, value)) + (unit_suffix(strip.unit) if value is not None else "")


def _verdicts(strip: Strip) -> str:
    counted = ", ".join(f"{count} {verdict}" for verdict, count in strip.verdicts.items())
    suspect = sum(dot.suspect for dot in strip.dots)
    return f"{counted}; {suspect} of {len(strip.dots)} verdicts rest on suspect trials" if suspect else counted


def _how(standing: Outlier) -> str:
    strip, dot, by_verdict, by_value = standing
    says = strip.says or _what(strip)
    verdict = f"{dot.verdict} (most: {strip.most})" if by_verdict else ""
    value = f"{_number(strip, dot.value)} (median: {_number(strip, strip.median)})" if by_value else ""
    return f"{says}: {', '.join(filter(None, (verdict, value)))}"
