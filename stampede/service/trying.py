"""The experiment that measures an own service as it is served today, and in other ways."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from stampede.advise.options import ServingOption
from stampede.diagnosis.deaths import preload_helps
from stampede.diagnosis.model import read_diagnosis
from stampede.docker.doctor import make_ready
from stampede.docker.engine import engine_cores
from stampede.errors import LabError, WrongUse
from stampede.experiment.model import Experiment, Load
from stampede.records.classes import own_as_json
from stampede.records.folder import write_whole
from stampede.records.mistakes import reason_of
from stampede.records.model import name_from
from stampede.records.nearest import nearest_first
from stampede.records.plural import plural
from stampede.records.run import REPLAY, TODAY, USER_SERVICE
from stampede.records.summary import Summary
from stampede.run.machine_lock import machine_lock
from stampede.run.measuring import measure_quietly
from stampede.run.options import MeasureOptions, RunRequest
from stampede.servers.program import PROGRAMS, SERVED_BY
from stampede.service.answers import Answers, Followed, Record
from stampede.service.build import ask_application, command_of_image, follow_start
from stampede.service.description import CALLABLE_PATTERN, HEAD, SERVERS, Served, UserService, read_user_service
from stampede.service.discovery import FROM_APPLICATION, Description
from stampede.service.first_answer import keeping_first_answer, reached_load, say_first_findings, say_parts
from stampede.service.image import lay_out_layer
from stampede.service.layer import FOLDER, Layer
from stampede.service.replay import Replay, read_replay
from stampede.service.theory import advise_way
from stampede.service.told import as_told
from stampede.service.variants import (
    ADVISED,
    LIFTING,
    ONLY_IF_NAMED,
    candidates,
    kinds_that_lift,
    too_large_ways,
    untried_reasons,
)
from stampede.terminal import interruptible, say

LASTS = {"short": "20s", "full": "2m"}
REPLAY_LASTS_S = {"short": 60, "full": 600}
"""The most seconds of a log that are sent again."""
TRIALS = 3


class Today(NamedTuple):
    """A service with what its server said of itself.

    ``told`` is None if the file says how the service is served in the place of a command, or if another server stands
    in for that of the command.
    """

    service: UserService
    layer: Layer
    told: Record | None = None
    followed: Followed | None = None


def how_loaded(service: UserService, told: Record | None) -> dict[str, Any]:
    """Return how an application is loaded alone; empty: nobody knows its name."""
    callable_ = told.callable if told else service.application.callable
    if not re.fullmatch(CALLABLE_PATTERN, callable_):
        return {}
    if told:
        imports = [each for each in told.imports if each == FOLDER or each.startswith(f"{FOLDER}/")]
        return {"callable": callable_, "folder": told.chdir or told.folder, "imports": imports, "called": ""}
    called = "asgi" if service.served.kind.is_asgi else "wsgi"
    return {"callable": callable_, "folder": "", "imports": [], "called": called}


@contextmanager
def followed_today(service: UserService, fallbacks: Mapping[str, Any] | None = None) -> Iterator[Today]:
    """Follow the start command of a service in its image. If the image lacks the server, it is built once more.

    Raise LabError if the lab cannot measure the server that the command starts.
    """
    followed: Followed | None = None
    application = service.application
    if application.image and not (application.command or application.callable):
        command = command_of_image(application.image, say)
        service = service.model_copy(update={"application": application.model_copy(update={"command": command})})
    for _ in range(3):
        with lay_out_layer(service) as layer:
            if not service.application.command:
                yield Today(service, replace(layer, loaded=how_loaded(service, None)), None, followed)
                return
            say("Following the start command …")
            followed = follow_start(layer, say, fallbacks or {})
            missing = SERVED_BY.get(followed.missing, followed.missing)
            if missing in SERVERS and missing != service.served.server:
                served = {missing: PROGRAMS[missing].release, "workers": 1}
                served |= {"interface": "asgi"} if missing == "granian" else {}
                service = service.model_copy(update={"served": Served.model_validate(served)})
                continue
            if not (told := followed.server):
                yield Today(service, layer, None, followed)
                return
            asked = as_told(service, told)
            if not asked.application.command:  # another server stands in
                service = asked
                continue
            server = (asked.served.server, asked.served.release)
            yield Today(asked, replace(layer, server=server, loaded=how_loaded(asked, told)), told, followed)
            return
    raise LabError("The image of the application lacks the server that its start command starts.")


GIVE_COMMAND = 'stampede init FOLDER --command "gunicorn shop.wsgi" --to another.yaml --check'


def ask_and_start(path: Path, written: Description, describe: Callable[[Answers], Description], results: Path) -> None:
    """Follow the start command of a description that was just written, ask the application, and start it once.

    ``describe`` returns the description that goes with the answers. A file that somebody has changed meanwhile stays as
    it is. Raise LabError as start_once does, or if the application cannot be loaded; the file stays.
    """
    if path.read_text(encoding="utf-8") == written.text:
        if written.fallbacks is None:
            raise WrongUse(f"No start command was found, so {path} is not complete.", GIVE_COMMAND)
        with (
            interruptible(),
            machine_lock(say, f"stampede init --check, which asks the application of {path.name}"),
        ):
            make_ready(say)
            answers = _ask_today(path, written, describe)
            again = describe(answers)
            write_whole(path, again.text)
        if answers.routes:
            named = f" {path} now names those to measure." if FROM_APPLICATION in again.text else ""
            say(f"The application ({answers.framework}) has {plural(len(answers.routes), 'route')}.{named}")
        else:
            say(f"The requests are guessed, because {answers.problem or 'the application has no routes'}.")
    start_once(path, MeasureOptions(), results=results)


def _ask_today(path: Path, written: Description, describe: Callable[[Answers], Description]) -> Answers:
    """Follow the start command in the image of a service, and ask the application that it serves for its routes."""
    with followed_today(read_user_service(path), written.fallbacks) as today:
        answers = Answers(followed=today.followed)
        described = describe(answers)
        write_whole(path, described.text)
        if today.followed and not today.followed.server:
            lines = [line[2:] for line in described.text.splitlines()[len(HEAD) :] if line.startswith("# ")]
            why = today.followed.why
            raise LabError(
                f"The start command of {path} starts no server that the lab can measure.",
                "\n".join([*sorted(lines, key=lambda line: why not in line), GIVE_COMMAND]),
            )
        if not today.layer.loaded:
            return answers.model_copy(update={"problem": "its server names no application that can be imported"})
        return ask_application(today.layer, today.layer.loaded, say).model_copy(update={"followed": today.followed})


def start_once(path: Path, options: MeasureOptions, *, results: Path) -> None:
    """Start a service as it is served today, ask for each class of requests once, and say how it was answered.

    Raise LabError if the application does not start, or if a class is not answered as it should be.
    """
    with asked_today(path) as today:
        ways = candidates(today.service, today.layer, engine_cores(), today.told)[:1]
        experiment = experiment_of(path, today.service, ways, None)
        taken = replace(options, trials=1, jobs=1)
        command = f"stampede try {path.name} --check"
        measure_quietly(RunRequest(results_name(path), experiment, taken, results, command, only_check=True))
    say("The application starts, and answers each class of requests. To measure it: stampede try " + str(path))


def try_service(
    path: Path, options: MeasureOptions, *, ways: str, results: Path
) -> tuple[Path, Summary, list[ServingOption]]:
    """Measure a service as it is served today and in other ways. Return the run's folder, its summary and the ways.

    If ``ways`` names none, a first run of one trial finds what limits today's way, and so which ways are tried. If
    there is nothing to add to the first run, it is the result.
    """
    described = read_user_service(path)
    replay = read_replay(described.replay.log, described.replay.methods) if described.replay else None
    name, cores = results_name(path), engine_cores()
    with asked_today(path) as (service, layer, told, _):
        if replay:
            replay.write(layer.folder / "replay")

        def measure(
            tried: Sequence[ServingOption], ways: str, trials: int, *, check: bool = True
        ) -> tuple[Path, Summary]:
            experiment = experiment_of(path, service, tried, replay)
            taken = replace(options, trials=trials)
            command = taken.command(f"stampede try {path.name}", ways=ways)
            return measure_quietly(RunRequest(name, experiment, replace(taken, jobs=1), results, command, check=check))

        possible = candidates(service, layer, cores, told)
        if ADVISED in named_kinds(ways):
            possible.append(advise_way(service, layer, results / name / "latest", told))
        tried = choose_ways(possible, ways)
        say_what_is_not_done(service, layer, named_kinds(ways), cores, told)
        if ways:
            return *measure(tried, ways, options.trials), tried
        say_parts(replace(options, jobs=1), experiment_of(path, service, tried, replay))
        folder, summary = measure(tried[:1], TODAY, 1)
        diagnosis = None if summary.validity.verdict == "invalid" else read_diagnosis(folder)
        say_first_findings(summary, diagnosis)
        if not reached_load(folder, summary):
            return folder, summary, tried
        kinds = kinds_that_lift(service, [found.limit for found in diagnosis.bottlenecks] if diagnosis else [], cores)
        if not (diagnosis and preload_helps(diagnosis.bottlenecks)):
            kinds = [kind for kind in kinds if kind != "preload"]
        tried = choose_ways(possible, ways, kinds)
        if len(tried) == 1 and options.trials == 1:
            return folder, summary, tried
        further = ",".join(kind_of(way) for way in tried[1:])
        command = options.command(f"stampede try {path}", ways=further)
        with keeping_first_answer(folder, command) if diagnosis else nullcontext():
            return *measure(tried, ways, options.trials, check=False), tried


@contextmanager
def asked_today(path: Path) -> Iterator[Today]:
    """Follow the start command of a described service. Raise LabError if it starts no server that can be measured."""
    service = read_user_service(path)
    doing = f"stampede try, which follows the start command of {path.name}"
    with ExitStack() as stack:
        if not service.application.callable:
            with interruptible(), machine_lock(say, doing):
                make_ready(say)
                today = stack.enter_context(followed_today(service))
            if today.followed and not today.followed.server:
                problem = f"The start command of {path.name} {today.followed.why}."
                raise LabError(problem, f"Its last words: {today.followed.said or 'none'}")
        else:
            today = stack.enter_context(followed_today(service))
        yield today


def say_what_is_not_done(
    service: UserService, layer: Layer, named: Sequence[str], cores: int, told: Record | None = None
) -> None:
    """Say which ways are not tried, and what of the service cannot be kept in the lab."""
    kinds = named or [*service.served.kind.tried, *LIFTING]
    _say_each("Not tried", [*untried_reasons(service), *too_large_ways(service, layer, kinds, cores)])
    _say_each("Not kept", [*(f"{name} {value}." for name, value in (told.aside if told else {}).items()),
                           *(f"{layer.beside.file.name}: {key}." for key in layer.beside.left_out)])  # fmt: skip


def _say_each(lead: str, sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(f"{lead}: {sentence}")


def results_name(path: Path) -> str:
    """Return the name of the folder of results for a file that describes a service."""
    return name_from(path.stem, "service") + "-tried"


def named_kinds(ways: str) -> list[str]:
    """Return the names in the option WAYS."""
    return [name.strip() for name in ways.split(",") if name.strip()]


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


def kind_of(way: ServingOption) -> str:
    """Return the word by which the option WAYS names a way."""
    return ADVISED if way.name.startswith(ADVISED) else way.name.rpartition("-")[0] or TODAY


def experiment_of(
    path: Path, service: UserService, ways: Sequence[ServingOption], replay: Replay | None = None
) -> Experiment:
    """Return the experiment, with the requests of the service or of a log. Raise WrongUse if k6 cannot send them."""
    script, classes, further, duration = USER_SERVICE, service.requests, {}, LASTS
    if replay:
        script, classes, further = REPLAY, replay.classes, {"users_max": replay.users_max}
        duration = {name: f"{min(most_s, replay.lasts_s)}s" for name, most_s in REPLAY_LASTS_S.items()}
    settings = {"classes": own_as_json(classes), **further}
    if service.login:
        settings["login"] = own_as_json(service.login)
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
