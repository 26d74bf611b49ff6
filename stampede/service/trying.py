"""The experiment that measures an own service as it is served today, and in other ways."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from stampede.advise.options import ServingOption
from stampede.diagnosis.deaths import preload_helps
from stampede.diagnosis.improvement import find_improvement
from stampede.diagnosis.model import Diagnosis, read_diagnosis
from stampede.docker.doctor import make_ready
from stampede.docker.engine import engine_cores
from stampede.docker.machine_usage import is_busy
from stampede.errors import LabError, WrongUse
from stampede.experiment.model import Experiment, Load
from stampede.logs.access_log import MOST_CLASSES, class_name, read_requests
from stampede.logs.columns import route_of
from stampede.plan import timing
from stampede.records.classes import PATH_PATTERN, OwnRequestClass, as_json
from stampede.records.folder import read_trial, trial_folder, write_whole
from stampede.records.mistakes import reason_of
from stampede.records.model import name_from
from stampede.records.run import REPLAY, TODAY, USER_SERVICE
from stampede.records.summary import Summary
from stampede.records.words import nearest_first, plural
from stampede.run.machine_lock import machine_lock
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest
from stampede.servers.program import PROGRAMS, SERVED_BY
from stampede.service.answers import CALLABLE_PATTERN, Answers, Followed, Record, as_told
from stampede.service.build import ask_application, command_of_image, follow_start
from stampede.service.description import HEAD, SERVERS, UserService, read_user_service
from stampede.service.discovery import FROM_APPLICATION, Description
from stampede.service.layer import FOLDER, Layer, lay_out_layer
from stampede.service.variants import LIFTING, ONLY_IF_NAMED, kinds_that_lift, possible_ways, untried_reasons
from stampede.terminal import interruptible, report_path, say, time_in_words

LASTS = {"short": "20s", "full": "2m"}
REPLAY_LASTS_S = {"short": 60, "full": 600}
"""The most seconds of a log that are sent again."""
OTHERS = "others"
"""The class of the routes of a log that are seldom asked for."""
MOST_USERS, MOST_REQUESTS = 2000, 200_000
TRIALS = 3
GIVE_COMMAND = 'stampede init FOLDER --command "gunicorn shop.wsgi" --to another.yaml --check'


class Today(NamedTuple):
    """A service with what its server said of itself; ``told`` is None if the command starts no server.

    ``followed`` is the command of the description, also if another server stands in for that of the command.
    """

    service: UserService
    layer: Layer
    told: Record | None
    followed: Followed


@contextmanager
def followed_today(service: UserService, fallbacks: Mapping[str, Any] | None = None) -> Iterator[Today]:
    """Follow the start command of a service in its image. If the image lacks the server, it is built once more.

    Raise LabError if the lab cannot measure the server that the command starts.
    """
    application = service.application
    if application.image and not application.command:
        command = command_of_image(application.image, say)
        service = service.model_copy(update={"application": application.model_copy(update={"command": command})})
    stood_in_for: Followed | None = None
    for _ in range(4):
        with lay_out_layer(service) as layer:
            say("Following the start command …")
            followed = follow_start(layer, say, fallbacks or {})
            missing = SERVED_BY.get(followed.missing, followed.missing)
            if missing in SERVERS and missing != service.served.server:
                named = {service.served.server: None, missing: PROGRAMS[missing].release}
                service = service.model_copy(update={"served": service.served.model_copy(update=named)})
                continue
            if not (told := followed.server):
                yield Today(service, layer, None, followed)
                return
            command, service = service.application.command, as_told(service, told)
            if service.application.command != command:  # another server stands in
                stood_in_for = followed
                continue
            loaded = {}
            if re.fullmatch(CALLABLE_PATTERN, told.callable):
                imports = [each for each in told.imports if each == FOLDER or each.startswith(f"{FOLDER}/")]
                loaded = {"callable": told.callable, "folder": told.chdir or told.folder, "imports": imports}
            server = (service.served.server, service.served.release)
            yield Today(service, replace(layer, server=server, loaded=loaded), told, stood_in_for or followed)
            return
    raise LabError("The image of the application lacks the server that its start command starts.")


def ask_and_start(path: Path, written: Description, describe: Callable[[Answers], Description], results: Path) -> None:
    """Ask a start command, then the application for its routes, write the file ``path`` anew, and start the service.

    ``describe`` describes the service with answers. A file that somebody has changed stays. Raise LabError if the
    application cannot be loaded; the file stays.
    """
    if path.read_text(encoding="utf-8") == written.text:
        if written.fallbacks is None:
            raise WrongUse(f"No start command was found, so {path} is not complete.", GIVE_COMMAND)
        with interruptible(), machine_lock(say, f"stampede init --check, which asks the application of {path.name}"):
            make_ready(say)
            with followed_today(read_user_service(path), written.fallbacks) as today:
                answers = Answers(followed=today.followed)
                again = describe(answers)
                write_whole(path, again.text)
                if not today.told:
                    lines = [line[2:] for line in again.text.splitlines()[len(HEAD) :] if line.startswith("# ")]
                    problem = f"The start command of {path} starts no server that the lab can measure."
                    said = sorted(lines, key=lambda line: today.followed.why not in line)
                    raise LabError(problem, "\n".join([*said, GIVE_COMMAND]))
                if today.layer.loaded:
                    answers = ask_application(today.layer, say)
                    again = describe(answers.model_copy(update={"followed": today.followed}))
                    write_whole(path, again.text)
                else:
                    answers = Answers(problem="its server names no application that can be imported")
        if answers.routes:
            named = f" {path} now names those to measure." if FROM_APPLICATION in again.text else ""
            say(f"The application ({answers.framework}) has {plural(len(answers.routes), 'route')}.{named}")
        else:
            say(f"The requests are guessed, because {answers.problem or 'the application has no routes'}.")
    start_once(path, MeasureOptions(), results=results)


@contextmanager
def asked_today(path: Path) -> "Iterator[tuple[UserService, Layer, Record, Replay | None]]":
    """Follow the start command of a described service, and read the log that it replays, if there is one.

    Raise LabError if the command starts no server that can be measured.
    """
    service = read_user_service(path)
    replay = read_replay(service.replay.log, service.replay.methods) if service.replay else None
    with ExitStack() as stack:
        with interruptible(), machine_lock(say, f"stampede try, which follows the start command of {path.name}"):
            make_ready(say)
            today = stack.enter_context(followed_today(service))
        if not today.told:
            problem = f"The start command of {path.name} {today.followed.why}."
            raise LabError(problem, f"Its last words: {today.followed.said or 'none'}")
        if replay:  # what k6/replay.js reads
            (today.layer.folder / "replay").mkdir()
            requests = today.layer.folder / "replay" / "requests.json"
            requests.write_text(json.dumps(replay.requests), encoding="utf-8")
        yield today.service, today.layer, today.told, replay


def start_once(path: Path, options: MeasureOptions, *, results: Path) -> None:
    """Start a service as it is served today, ask for each class of requests once, and say how it was answered.

    Raise LabError if the application does not start, or if a class is not answered as it should be.
    """
    with asked_today(path) as (service, layer, told, replay):
        ways, _ = possible_ways(service, layer, told, engine_cores())
        experiment = experiment_of(path, service, ways[:1], replay)
        taken = replace(options, trials=1, jobs=1)
        command = f"stampede try {path.name} --check"
        measure_quietly(RunRequest(results_name(path), experiment, taken, results, command, only_check=True))
    answers = "" if replay else ", and answers each class of requests"
    say(f"The application starts{answers}. To measure it: stampede try {path}")


def try_service(
    path: Path, options: MeasureOptions, *, ways: str, results: Path
) -> tuple[Path, Summary, list[ServingOption]]:
    """Measure a service as it is served today and in other ways. Return the run's folder, its summary and the ways.

    If ``ways`` names none, a first run of one trial finds what limits today's way, and so which ways are tried. If
    there is nothing to add to the first run, it is the result.
    """
    cores = engine_cores()
    with asked_today(path) as (service, layer, told, replay):

        def measure(
            tried: Sequence[ServingOption], ways: str, trials: int, *, check: bool = True
        ) -> tuple[Path, Summary]:
            experiment = experiment_of(path, service, tried, replay)
            taken = replace(options, trials=trials, jobs=1)
            command = replace(options, trials=trials).command(f"stampede try {path.name}", ways=ways)
            return measure_quietly(RunRequest(results_name(path), experiment, taken, results, command, check=check))

        possible, refused = possible_ways(service, layer, told, cores)
        tried = choose_ways(possible, ways)
        kinds = named_kinds(ways) or [*service.served.kind.tried, *LIFTING]
        for reason in [*untried_reasons(service), *(why for kind, why in refused.items() if kind in kinds)]:
            say(f"Not tried: {reason}")
        beside = [f"{layer.beside.file.name}: {key}" for key in layer.beside.left_out]
        for kept in [*(f"{name} {value}" for name, value in told.aside.items()), *beside]:
            say(f"Not kept: {kept}.")
        if ways:
            return *measure(tried, ways, options.trials), tried
        say_times(replace(options, jobs=1), experiment_of(path, service, tried, replay))
        folder, summary = measure(tried[:1], TODAY, 1)
        diagnosis = None if summary.validity.verdict == "invalid" else read_diagnosis(folder)
        if not diagnosis:
            say("\nThe first trial is invalid, so its numbers do not count:")
            sentences = [reason for trial in summary.trials for reason in trial.reasons]
        else:
            say("\nSo far, after one trial of today's way:")
            sentences = diagnosis.sentences
        say("\n".join([*(f"- {sentence}" for sentence in sentences), ""]))
        if all(read_trial(trial_folder(folder, *trial.key)).outcome == "failed" for trial in summary.trials):
            return folder, summary, tried
        kinds = kinds_that_lift(service, [found.limit for found in diagnosis.bottlenecks] if diagnosis else [], cores)
        if not (diagnosis and preload_helps(diagnosis.bottlenecks)):
            kinds = [kind for kind in kinds if kind != "preload"]
        tried = choose_ways(possible, ways, kinds)
        if len(tried) == 1 and options.trials == 1:
            return folder, summary, tried
        further = ",".join(kind_of(way) for way in tried[1:])
        command = options.command(f"stampede try {path}", ways=further)
        try:
            with interruptible() if diagnosis else nullcontext():
                return *measure(tried, ways, options.trials, check=False), tried
        except BaseException:
            if diagnosis:
                say(f"The first answer is kept: {report_path(folder)}\n"
                    f"To read it: stampede report {folder}\nTo measure the other ways: {command}")  # fmt: skip
            raise


def say_times(options: MeasureOptions, experiment: Experiment) -> None:
    """Say about when the first answer comes, and how long the other ways take."""
    [first, *ways] = experiment.variants
    today, every = replace(options, variants=first, trials=1).plan(experiment), options.plan(experiment)
    busy = is_busy()
    first_s, every_s = (
        sum(timing.batches_s(plan, busy=busy)) + timing.report_s(plan, busy=busy) for plan in (today, every)
    )
    first_s += timing.before_s(today, busy=busy, check=True)
    ways_too = f" and {plural(len(ways), 'other way')}" if ways else ""
    say(
        f"Today's way, 1 trial: about {time_in_words(round(first_s))}, and about "
        f"{time_in_words(timing.IMAGE_S)} if the image is not built. Then comes the first answer; Ctrl-C after it "
        "keeps it.\n"
        f"After it, today's way{ways_too}, {plural(len(every.rounds), 'trial')} each: about "
        f"{time_in_words(round(every_s))}; longer if further ways may lift a limit."
    )


def print_best_way(
    console: Console, summary: Summary, diagnosis: Diagnosis | None, tried: Sequence[ServingOption]
) -> None:
    """Print why the best way is better than today's, and its configuration; nothing if no way is better."""
    found = find_improvement(summary, diagnosis, [way.name for way in tried]) if len(tried) > 1 else None
    if not (found and found.best):
        return
    way = next(option for option in tried if option.name == found.best)
    console.print()
    console.print(Text(way.kind.reason))
    if found.as_good:
        says = [option.kind.label for option in tried if option.name in found.as_good]
        console.print(Text(f"As good: {', '.join(says)}."))
    console.print()
    console.print(Text(way.variant.deployment()), soft_wrap=True)


def results_name(path: Path) -> str:
    """Return the name of the folder of results for a file that describes a service."""
    return name_from(path.stem, "service") + "-tried"


def named_kinds(ways: str) -> list[str]:
    """Return the names in the option WAYS."""
    return [name.strip() for name in ways.split(",") if name.strip()]


def kind_of(way: ServingOption) -> str:
    """Return the word by which the option WAYS names a way."""
    return way.name.rpartition("-")[0] or TODAY


def choose_ways(ways: Sequence[ServingOption], names: str, lifting: Sequence[str] = ()) -> list[ServingOption]:
    """Return today's way and those that are named. If none is named, return the default ways and those of ``lifting``.

    The kinds in ``lifting`` lift a limit that was found. Raise WrongUse for an unknown name.
    """
    wanted = named_kinds(names)
    known = [kind_of(way) for way in ways]
    for name in wanted:
        if name not in known:
            there = nearest_first(name, known)
            raise WrongUse(f"--ways {names}: there is no way {name} for this service; there are {there}.")
    default = [name for name in known if name not in (*ONLY_IF_NAMED, *LIFTING)]
    taken = [TODAY, *wanted] if wanted else [*default, *lifting]
    return [way for way, name in zip(ways, known, strict=True) if name in taken]


def experiment_of(
    path: Path, service: UserService, ways: Sequence[ServingOption], replay: "Replay | None" = None
) -> Experiment:
    """Return the experiment, with the requests of the service or of a log. Raise WrongUse if k6 cannot send them."""
    script, classes, further, duration = USER_SERVICE, service.requests, {}, LASTS
    if replay:
        script, classes, further = REPLAY, replay.classes, {"users_max": replay.users_max}
        duration = {name: f"{min(most_s, replay.lasts_s)}s" for name, most_s in REPLAY_LASTS_S.items()}
    settings = {"classes": as_json(classes), **further}
    if service.login:
        settings["login"] = as_json(service.login)
    asked = {"script": script, "settings": settings, "duration": duration}
    try:
        load = Load.model_validate(asked)
    except ValidationError as error:
        what = "replay" if replay else "requests"
        raise WrongUse(f"{path.name}: {what}: {reason_of(error, Load, asked)}.") from None
    return Experiment(
        title=f"{path.stem}, as it is served today and in other ways",
        question="Do requests wait for a worker while another worker has a free thread, and what helps?",
        loads={"replay" if replay else "own": load},  # names by which runs of any version are compared
        trials=TRIALS,
        variants={way.name: way.variant for way in ways},
    )


@dataclass(frozen=True)
class Replay:
    """Requests in the order of sending: when, in ms after the first one; of which class; method and target.

    ``classes`` are the routes, each with its mean rate. ``users_max`` is how many requests may be under way at once.
    """

    classes: dict[str, OwnRequestClass]
    requests: list[tuple[float, str, str, str]]
    users_max: int

    @property
    def lasts_s(self) -> int:
        """How long the requests take to send, in whole seconds."""
        return max(1, ceil(self.requests[-1][0] / 1000 + 0.001))


def read_replay(path: Path, methods: Sequence[str]) -> Replay:
    """Read the requests of a log. Raise WrongUse if it has fewer than two, or more than MOST_REQUESTS.

    A log has the time at which an answer was complete, so a request came earlier by its duration, if the log has it.
    Requests of a log whose times are whole seconds are spread evenly over their second.
    """
    lines = [line for line in read_requests(path) if line.method in methods and re.fullmatch(PATH_PATTERN, line.target)]
    if not 2 <= len(lines) <= MOST_REQUESTS:
        raise WrongUse(
            f"{path.name} has {len(lines):,} requests with {', '.join(methods)}, but a replay has 2 to "
            f"{MOST_REQUESTS:,}.",
            hint="replay.methods: [GET, HEAD, POST] counts further methods.",
        )
    whole = all(line.at == int(line.at) for line in lines)
    times = []
    for at, same in groupby(sorted(lines, key=lambda line: line.at), key=lambda line: line.at):
        together = list(same)
        for place, line in enumerate(together):
            within = (place + 0.5) / len(together) if whole else 0.0
            times.append((at + within - (line.took_s or 0.0), line))
    times.sort(key=lambda timed: timed[0])
    frequent = Counter((line.method, route_of(line.target)) for _, line in times).most_common(MOST_CLASSES - 1)
    names: Counter[str] = Counter([OTHERS])
    classes = {route: class_name(*route, names) for route, _ in frequent}
    requests = [
        (round(1000 * (at - times[0][0]), 3), classes.get((line.method, route_of(line.target)), OTHERS),
         line.method, line.target)
        for at, line in times
    ]  # fmt: skip
    lasts_s = max(1.0, requests[-1][0] / 1000)
    counts = Counter(name for _, name, _, _ in requests)
    routes = {name: (method, route) for (method, route), name in classes.items()} | {OTHERS: ("GET", "/")}
    asked = {
        name: OwnRequestClass(path=routes[name][1], method=routes[name][0], per_second=count / lasts_s)
        for name, count in sorted(counts.items())
    }
    busiest = max(Counter(int(at // 1000) for at, _, _, _ in requests).values())
    return Replay(asked, requests, min(len(requests), MOST_USERS, 10 * busiest + 10))
