"""The page of a class: strips with a dot for each laptop, who differs, and predictions beside results."""

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from stampede.experiment.model import Experiment
from stampede.records.folder import write_whole
from stampede.records.words import plural
from stampede.report.page import render
from stampede.report.wording import claim_subject, number, unit_suffix, whole_number
from stampede.teach.classroom.drawing import COLOURS, draw_strip
from stampede.teach.classroom.predictions import ClassPrediction, collect_predictions
from stampede.teach.classroom.strips import FAR, FEW, NEAR, NEAR_RATIO, Laptop, Strip, strips
from stampede.teach.classroom.submissions import SubmittedRun

_KINDS_OF_KERNEL = {"microsoft": "WSL2", "linuxkit": "Docker Desktop", "orbstack": "OrbStack"}
_PLAIN = re.compile(r"[^\w .,:+~()@/-]")


class ShownStrip(NamedTuple):
    """A strip as the page shows it: the claim, which number it is about, the numbers and verdicts, and a picture."""

    heading: str
    what: str
    numbers: str
    picture: Markup


class Chapter(NamedTuple):
    """What the page says of one experiment. ``own`` is the lab's own file; ``differing`` goes by laptop."""

    name: str
    own: Experiment
    says: str
    predictions: list[ClassPrediction]
    strips: list[ShownStrip]
    differing: dict[int, list[str]]


def write_class_page(
    target: Path, laptops: Sequence[Laptop], experiments: Mapping[str, Experiment], *, left_out: int
) -> list[Chapter]:
    """Write the page of a class, whole or not at all, and return its chapters, one for each experiment with a run."""
    cores = sorted({handed.run.cores for laptop in laptops for handed in laptop.runs.values()})
    of_cores = dict(zip(cores, cycle(COLOURS), strict=False))
    collected = collect_predictions(laptops)
    chapters = []
    for name, own in experiments.items():
        there = sum(name in laptop.runs for laptop in laptops)
        if not there:
            continue
        made = strips(laptops, name, own)
        shown, differing = [], dict[int, list[str]]()
        for strip in made:
            shown.append(_shown(strip, of_cores))
            most, far = strip.most, strip.far
            for dot in strip.dots:
                told = [f"{dot.verdict} (most: {most})"] * (dot.verdict != most)
                if dot.laptop in far:
                    told.append(f"{_number(strip, dot.value)} (median: {_number(strip, strip.median)})")
                if told:
                    differing.setdefault(dot.laptop, []).append(f"{strip.claim.says}: {', '.join(told)}")
        same = sum(len(strip.verdicts) == 1 for strip in made)
        says = f"{plural(there, 'laptop')}; {same} of {len(made)} claims have the same verdict on all. "
        if differing:
            names = ", ".join(f"laptop-{number}" for number in sorted(differing))
            says += f"{len(differing)} differ{'s' if len(differing) == 1 else ''} from the others: {names}."
        else:
            says += "No laptop differs from the others."
        asked = [found for found in collected if name == f"lesson-{found.step}"]
        chapters.append(Chapter(name, own, says, asked, shown, dict(sorted(differing.items()))))
    rows = {laptop.name: [properties(handed) for handed in laptop.runs.values()] for laptop in laptops}
    page = render(
        "class.html", app="stampede.teach.classroom", laptops=laptops, chapters=chapters, colours=of_cores,
        left_out=left_out, far=FAR, few=FEW, near=NEAR_RATIO,
        near_ms=f"{NEAR['ms']:g}", near_share=f"{NEAR['share']:g}",
        head=[*next(iter(rows.values()))[0]],
        rows={name: [", ".join(dict.fromkeys(values)) for values in zip(*(each.values() for each in of), strict=True)]
              for name, of in rows.items()},
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


def _shown(strip: Strip, of_cores: Mapping[int, str]) -> ShownStrip:
    """Return what the page shows of a strip: also the median of the class, and what theory and the article say."""
    claim, of_unit = strip.claim, unit_suffix(strip.unit)
    subject = claim_subject(claim).rstrip(",") + (f",{of_unit}" if of_unit else "")
    told = [f"Median of {len(strip.values)}: {_number(strip, strip.median)}"]
    if strip.predicted:
        low, high = min(strip.predicted), max(strip.predicted)
        told.append(f"theory: {_number(strip, low)}{f' to {_number(strip, high)}' if high > low else ''}")
    if strip.published is not None:
        told.append(f"published: {_number(strip, strip.published)}")
    numbers = f"{'; '.join(told)}."
    picture = draw_strip(strip, of_cores, f"{claim.says}. {numbers}")
    numbers += f" {', '.join(f'{count} {verdict}' for verdict, count in strip.verdicts.items())}"
    if suspect := sum(dot.suspect for dot in strip.dots):
        numbers += f"; {suspect} of {len(strip.dots)} verdicts rest on suspect trials"
    return ShownStrip(claim.says, f"{subject}; the claim: {claim.bound}{of_unit}", f"{numbers}.", picture)


def _number(strip: Strip, value: float | None) -> str:
    return number(whole_number(strip.unit, value)) + (unit_suffix(strip.unit) if value is not None else "")
