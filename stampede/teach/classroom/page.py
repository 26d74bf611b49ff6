"""The page of a class: strips with a dot for each laptop, who differs and why, and predictions beside results."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

from stampede.experiment.model import Experiment
from stampede.records.folder import write_whole
from stampede.records.plural import plural
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
from stampede.teach.classroom.outliers import FAR, FEW, NEAR, NEAR_RATIO, Differing, Outlier, differing, traits
from stampede.teach.classroom.predictions import ClassPrediction, collect_predictions
from stampede.teach.classroom.strips import Laptop, Strip, strips
from stampede.teach.lesson.notes import Bar

_OF_LAPTOPS = ("cores", "processor", "memory", "kernel", "engine", "CPU mode", "trials", "lab", "lab's files")


class Chapter(NamedTuple):
    """What the page says of one experiment. ``own`` is the lab's own file."""

    name: str
    own: Experiment
    says: str
    predictions: list[ClassPrediction]
    strips: list[Strip]
    differing: list[Differing]


def write_class_page(
    target: Path,
    laptops: Sequence[Laptop],
    experiments: Mapping[str, Experiment],
    predictions: Mapping[int, list[tuple[str, Bar]]],
    *,
    left_out: int,
    checked: bool,
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
        differ = differing(laptops, name, made)
        claims = [len(strip.verdicts) for strip in made if strip.claim]
        says = f"{plural(there, 'laptop')}; {claims.count(1)} of {len(claims)} claims have the same verdict on all. "
        if differ:
            names = ", ".join(row.laptop.name for row in differ)
            says += f"{len(differ)} differ{'s' if len(differ) == 1 else ''} from the others: {names}."
        else:
            says += "No laptop differs from the others."
        asked = [found for found in collected if name == f"lesson-{found.step}"]
        chapters.append(Chapter(name, own, says, asked, made, differ))
    page = render(
        "class.html", app="stampede.teach.classroom", laptops=laptops, chapters=chapters, colours=of_cores,
        left_out=left_out, far=FAR, few=FEW, near=NEAR_RATIO,
        near_ms=f"{NEAR['ms']:g}", near_share=f"{NEAR['share']:g}",
        head=[*_OF_LAPTOPS, "manifests"], cells=_cells, heading=_heading, what=_what, told=_told, verdicts=_verdicts,
        draw=lambda strip: draw_strip(strip, of_cores, f"{_heading(strip)}. {_told(strip)}"),
        summary=_prediction_summary, how=_how,
        draw_predictions=lambda found: draw_predictions(
            found, f"The class predicted: {found.says}. {_prediction_summary(found)}"
        ),
        has_predictions=any(chapter.predictions for chapter in chapters), checked=checked,
    )  # fmt: skip
    write_whole(target, page)
    return chapters


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


def _cells(laptop: Laptop) -> list[str]:
    facets = [dict(traits(handed)) for handed in laptop.runs.values()]
    cells = [", ".join(dict.fromkeys(values[name] for values in facets)) for name in _OF_LAPTOPS]
    return [*cells, ", ".join(f"{name} {handed.manifest[:8]}" for name, handed in laptop.runs.items())]
