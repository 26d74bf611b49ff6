"""The sentences of the screen: the answer, the cures, how sure they are, how many claims hold, what to type next."""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median_high

from stampede.evaluate.statistics.stopping import ENOUGH
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.answer import Pair, answers, claim_figure, cures, lead, measured_phrase
from stampede.report.spread import word_list
from stampede.report.wording import shortened
from stampede.typed import option, typed

_OTHERS = {"not reproduced": "Not so:", "undecided": "Not sure:", "invalid": "Not measured:"}


def claim_sentence(run: Run, summary: Summary, pair: Pair) -> str:
    """Return a claim that answers the question, or names a cure, with its number."""
    return f"{lead(run, pair)} {pair[1].says}: {measured_phrase(run, summary, pair)}."


def cure_sentences(run: Run, summary: Summary) -> Iterator[str]:
    """Yield the first cure with its number, and a sentence on all other cures by the names of their variants."""
    pairs = cures(run, summary)
    yield from (claim_sentence(run, summary, pair) for pair in pairs[:1])
    by_lead: dict[str, list[str]] = {}
    for pair in pairs[1:]:
        short = f"{pair[0].value.variant} ({measured_phrase(run, summary, pair)})"
        by_lead.setdefault(lead(run, pair), []).append(short)
    for words, told in by_lead.items():
        yield f"{words.replace('Helps', 'Helps, too')} {word_list(told)}."


def sureness(run: Run, summary: Summary, width: int) -> str:
    """Return how many trials are valid and, of a run in doubt, the first reason and how many more there are."""
    trials = summary.trials
    each = f", {run.trials} of each variant" if run.trials > 1 else ""
    if summary.validity.verdict == "valid":
        brackets = " In brackets: 95 % intervals." if run.trials >= ENOUGH and run.claims else ""
        return (
            f"Valid: all {plural(len(trials), 'trial')}{each}.{brackets}"
            if len(trials) > 1
            else "Valid: the only trial."
        )
    doubtful = sum(trial.verdict != "valid" for trial in trials)
    first, *more = _reasons(summary) or ["the reasons are in the report"]
    before = f"{summary.validity.verdict.capitalize()}: {doubtful} of {plural(len(trials), 'trial')}; "
    further = f" (+ {plural(len(more), 'reason')})" if more else ""
    first = first.partition("\n")[0].removesuffix(".")  # what a program wrote is in the report
    told = f"{before}{shortened(first, max(width - len(before + further) - 1, 20))}{further}"
    return told if told.endswith("…") else f"{told}."


def _reasons(summary: Summary) -> list[str]:
    """Return the reasons to doubt trials, the worst trials' first, without the notes on valid trials."""
    worst_first = sorted(summary.trials, key=lambda trial: trial.verdict != "invalid")
    of_trials = [reason for trial in worst_first for reason in trial.doubts]
    return [*dict.fromkeys([*of_trials, *(summary.validity.reasons if not of_trials else [])])]


def claim_sentences(run: Run, summary: Summary, shown: Sequence[Pair], width: int, most: int = 2) -> Iterator[str]:
    """Yield how many claims have each verdict, and at most ``most`` that do not hold and are not yet ``shown``."""
    pairs = [*zip(run.claims, summary.claims, strict=True)]
    if not pairs:
        return
    if run.trials < ENOUGH and not any(row.decided for _, row in pairs):
        measured = [(claim, row) for claim, row in pairs if row.measured is not None]
        for_it = sum(claim.holds(row.measured or 0) for claim, row in measured)
        few = "One trial decides" if run.trials == 1 else f"{run.trials} trials decide"
        yield f"{few} no claim; {for_it} of {len(pairs)} hold so far (to decide: {more_trials(summary)})."
        return
    holding = sum(row.verdict == "reproduced" for _, row in pairs)
    suspect = sum(row.suspect for _, row in pairs)
    doubt = f"; {suspect} of {plural(len(pairs), 'verdict')} rest on suspect trials" if suspect else ""
    verdicts = Counter(row.verdict for _, row in pairs if row.verdict != "reproduced")
    rest = "".join(f"; {count} {verdict}" for verdict, count in verdicts.most_common())
    yield f"{holding} of {plural(len(pairs), 'claim')} {'holds' if len(pairs) == 1 else 'hold'}{rest}{doubt}."
    others = [pair for pair in pairs if pair[1].verdict != "reproduced" and pair not in shown]
    for claim, row in others[:most]:
        side = "at least" if claim.at_least is not None else "at most"
        bound = f", claimed {side} {claim_figure(claim, row, claim.limit)}" if row.measured is not None else ""
        before, value = _OTHERS.get(row.verdict, "Not measured:"), measured_phrase(run, summary, (claim, row))
        yield f"{before} {shortened(row.says, max(width - len(before + value + bound) - 4, 20))}: {value}{bound}."


def more_trials(summary: Summary) -> str:
    """Return the option that decides at least half of the claims, and how long it takes."""
    needed = [row.trials_needed for row in summary.claims if row.trials_needed]
    trials = median_high(needed) if needed else ENOUGH
    return f"{option('trials', trials)}, {max(1, round(trials * summary.round_s / 60))} min"


def next_lines(run: Run, summary: Summary, report: str, tables: str, width: int) -> Iterator[str]:
    """Yield where the report is, the command ``tables`` that prints all tables, and the first of what to type next."""
    lines = (f"Report: {report} · all tables: {tables}", f"Report: {report} · {tables}")
    fitting = [line for line in lines if len(line) <= width][:1]
    yield from fitting or (f"Report: {report}", f"All tables: {tables}")
    name, steps = run.experiment, []
    if any("busy" in reason or "other machines" in reason for reason in _reasons(summary)):
        steps.append(f"on a quiet machine: {typed('run', name) if run.claims else run.command}")
    if run.claims and run.trials < ENOUGH and not any(row.decided for row in summary.claims):
        steps.append(f"{typed('run', name)} {more_trials(summary).partition(',')[0]}")
    pair, cure = next(iter(answers(run, summary)), None), next(iter(cures(run, summary)), None)
    if pair and cure and pair[0].value.variant != cure[0].value.variant:
        steps.append(f"stampede watch {name} --variants {pair[0].value.variant},{cure[0].value.variant}")
    if run.claims:
        steps.append("for your own service: stampede init FOLDER, then stampede try")
    yield from [line for line in (f"Next: {step}" for step in steps) if len(line) <= width][:1]
