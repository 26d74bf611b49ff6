"""The images: two base images, which are pulled or built as stand-ins, and the lab's own images.

The lab builds its own images, and builds an image again when one of its files has changed.
"""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException, NoSuchImage

from lab.engine.causes import NO_ADDRESS, cause, way_to_host
from lab.engine.containers import OWNER_LABEL, PROJECT, owner
from lab.engine.engine import Say, ca_bundle, is_debian_root, last_line, output, run_command, running_beside
from lab.engine.inputs import inputs_digest
from lab.errors import LabError
from lab.interruption import uninterrupted
from lab.paths import COMPOSE_FILE, SERVERS, TOOLS
from lab.plan import Plan
from lab.servers.base import BESIDE, BESIDE_PROJECT, Beside, Layer
from lab.services import image_of

DEBIAN = "debian:trixie-slim"
K6_RELEASE = "2.1.0"
K6 = f"grafana/k6:{K6_RELEASE}"
BASE_IMAGES: dict[str, tuple[str, ...]] = {DEBIAN: (), K6: ("k6",)}
"""The images that are used as published or that other images are built on, each with its main packages."""
PINNED = {line.split("@")[0]: line for line in (TOOLS / "base-images.txt").read_text(encoding="utf-8").split()}
"""For each base image, the name with the digest that is pulled. `make lock` pins newer digests."""
STAND_IN = "stampede.stand-in"
INPUTS = "stampede.inputs"
LAB_USER = "10001"
"""The user of the lab's own images, who also runs an image that would run as root."""


@dataclass(frozen=True)
class OwnImage:
    """An image that the lab builds: its service, the factors (LAB_…) that Compose builds it with, and its packages.

    ``packages`` names the main packages of the image, as provenance finds them: Python's packages are ``python/…``.
    ``build_minutes``: see ``Variant.build_minutes``.
    """

    service: str
    packages: tuple[str, ...]
    factors: Mapping[str, str] = field(default_factory=dict)
    layer: Layer | None = None
    build_minutes: int = 0

    @property
    def name(self) -> str:
        """The name of the image in docker-compose.yml, e.g. stampede/gunicorn:27.0.1."""
        return image_of(self.service, self.factors)


BESIDE_SERVERS = {
    "nginx": OwnImage("nginx", ("nginx",)),
    "haproxy": OwnImage("haproxy", ("haproxy",)),
    "mariadb": OwnImage("mariadb", ("mariadb-server",)),
    "api": OwnImage("api", ("python3",)),
    "client": OwnImage("client", ("python3",)),
}
"""The lab's own images that are not servers, by their service."""


def images_of(plan: Plan) -> list[OwnImage]:
    """Return the lab's own images that a plan needs, without repetitions."""
    images: dict[str, OwnImage] = {}
    for trial in plan.trials:
        server = trial.variant
        of_server = OwnImage(server.service, ("python3", *server.packages), server.factors(), server.layer,
                             server.build_minutes)  # fmt: skip
        known = images.get(of_server.name, of_server)
        packages = tuple(dict.fromkeys((*known.packages, *of_server.packages)))
        images[of_server.name] = replace(known, packages=packages)
        for service in trial.services_beside:
            images[BESIDE_SERVERS[service].name] = BESIDE_SERVERS[service]
    return list(images.values())


def build_images(images: Iterable[OwnImage], say: Say) -> None:
    """Build those of the lab's own images that are missing, or whose files or base image have changed."""
    base = contents(DEBIAN)
    for image in images:
        if image.layer:
            _build_layer(image, image.layer, say)
            continue
        digest = inputs_digest(image.service, image.factors, base)
        if label(image.name, INPUTS) == digest:
            continue
        say(f"Building {image.name} …{_takes(image)}")
        began = time.monotonic()
        environment = os.environ | image.factors | {"LAB_INPUTS": digest, "LAB_CA_BUNDLE": ca_bundle()}
        command = ["docker", "compose", "--file", str(COMPOSE_FILE), "--profile", "*", "build", image.service]
        problem = f"The image {image.name} could not be built."
        run_command(command, f"building {image.name}", problem, say, environment)
        say(f"Built {image.name} in {time.monotonic() - began:.0f} s.")


def _takes(image: OwnImage) -> str:
    minutes = f"about {image.build_minutes} minutes on two cores"
    return f" This takes {minutes}, once: it compiles Python." if image.build_minutes else ""


def _build_layer(image: OwnImage, layer: Layer, say: Say) -> None:
    """Build the image of somebody's own application, if it is missing, on the newest image of its server.

    Then load the application once. Raise LabError with its last words if it cannot be loaded.
    """
    say = _without_secrets(say, layer)
    if layer.image:
        _build_on_image(image, layer, say)
        _load_own(image, layer, say)
        return
    releases = {name: value for name, value in image.factors.items() if name == "LAB_RELEASE" and value}
    server = OwnImage(image.service, image.packages, releases)
    build_images([server], say)
    under = str(DockerClient().image.inspect(server.name).id)
    if label(image.name, INPUTS) != under:
        _build_own(image, layer, server, under, say)
    _load_own(image, layer, say)


def _without_secrets(say: Say, layer: Layer) -> Say:
    """Return the same function for texts that may quote what an application or a build printed."""
    return lambda text: say(layer.masked(text.encode()).decode())


def _load_own(image: OwnImage, layer: Layer, say: Say) -> None:
    """Load the application once, unless the services that are missing now may be needed. Raise LabError if it fails."""
    if layer.beside or layer.before or layer.hosts:  # the application may need them to be loaded
        _make_beside_ready(layer.beside, say)
        return
    factors = [word for name in ("LAB_CALLABLE", "LAB_APP") for word in ("--env", f"{name}={image.factors[name]}")]
    try:
        _run_once(
            [*factors, "--tmpfs", "/tmp"], image.name, ["-c", _LOAD, str(LOADED_WITHIN_S)], "loading your application",  # noqa: S108  # in the container
            "Your application cannot be loaded.", say,
        )  # fmt: skip
    except LabError as error:
        said = layer.masked(error.hint.encode()).decode()
        hint = "\n".join(filter(None, [way_to_host(said), said]))
        raise LabError(f"Your application cannot be loaded: {cause(said)}", hint) from None


LOADED_WITHIN_S = 120
"""How long somebody's own application may take to be loaded. Twenty seconds are normal for a large one."""
_LOAD = f"""\
import os, socket, sys, threading, time, traceback
def resolve(host, *words, resolve=socket.getaddrinfo, **options):
    try:
        return resolve(host, *words, **options)
    except socket.gaierror:
        unknown[host] = None
        raise
unknown = {{}}
socket.getaddrinfo = resolve
def give_up(main=threading.get_ident(), sleep=time.sleep):
    sleep(float(sys.argv[1]))
    traceback.print_stack(sys._current_frames()[main])
    print("It was not loaded within", sys.argv[1], "s; the last line above is what it was doing.", file=sys.stderr)
    leave(1)
def leave(code, leave=os._exit):
    for host in unknown:
        print("{NO_ADDRESS}", host, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    leave(code)
threading.Thread(target=give_up, daemon=True).start()
code = 0
try:
    import own
except SystemExit as left:
    print(left.code if isinstance(left.code, str) else "It called sys.exit(%s)." % left.code, file=sys.stderr)
    code = 1
except BaseException:
    traceback.print_exc()
    code = 1
leave(code)
"""
"""Load an application and leave at once, whatever threads, handlers of signals and exit functions it has."""


def _run_once(options: list[str], image: str, words: list[str], what: str, problem: str, say: Say) -> None:
    """Run Python in a container without a network, and remove the container. Raise LabError if it fails.

    The container has a name, because ending Docker's client does not end a container.
    """
    name = f"{CHECK_PROJECT}-{os.getpid()}-{time.monotonic_ns()}"
    labels = {OWNER_LABEL: owner(), PROJECT: CHECK_PROJECT}
    labelled = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    command = [
        "docker", "run", "--rm", "--init", "--name", name, *labelled, "--network", "none", "--read-only", "--cap-drop",
        "ALL", "--security-opt", "no-new-privileges", *options, "--entrypoint", "python", image, *words,
    ]  # fmt: skip
    try:
        run_command(command, what, problem, say, within_s=LOADED_WITHIN_S + 60)
    except BaseException:
        with uninterrupted():
            output(["docker", "rm", "--force", name])
        raise


CHECK_PROJECT = "stampede-check"
"""The project in the label of containers that check an image, so that the clean-up after a killed lab finds them."""


def _make_beside_ready(beside: Beside | None, say: Say) -> None:
    """Pull or build the missing images of the services beside somebody's own application."""
    for name, one in (beside.services if beside else {}).items():
        service, image = name.removeprefix(BESIDE), str(one["image"])
        assert beside
        if service in beside.builds:
            say(f"Building {service} …")
            command = ["docker", "compose", "--file", str(beside.file), "--project-name", BESIDE_PROJECT,
                       "build", service]  # fmt: skip
            run_command(command, f"building {service}", f"The image of {service} could not be built.", say)
        else:
            _pull_own(image, f"The image {image} of {service} could not be pulled.", say)


def _pull_own(image: str, problem: str, say: Say) -> None:
    """Pull somebody's own image, if it is missing. Raise LabError with ``problem`` if this is not possible."""
    if not DockerClient().image.exists(image):
        say(f"Pulling {image} …")
        run_command(["docker", "pull", "--quiet", image], f"pulling {image}", problem, say)


def _build_on_image(image: OwnImage, layer: Layer, say: Say) -> None:
    """Build the layer on an image that exists. Raise LabError if the image lacks what the lab needs."""
    _pull_own(layer.image, f"The image {layer.image} could not be pulled.", say)
    under = DockerClient().image.inspect(layer.image)
    config = under.config
    runs_as = (config.user or "").partition(":")[0]
    if runs_as in ("", "0", "root"):
        runs_as = LAB_USER
        say(f"{layer.image} runs as root; the lab runs it as the user {LAB_USER}, who has no rights.")
    if label(image.name, INPUTS) == under.id:
        return
    check = (SERVERS / "own" / "image" / "check.py").read_text(encoding="utf-8")
    problem = f"The image {layer.image} cannot be measured."
    _run_once([], layer.image, ["-c", check, *layer.server], f"checking {layer.image}", problem, say)
    imports = next((one.partition("=")[2] for one in config.env or [] if one.startswith("PYTHONPATH=")), "")
    say(f"Building a layer on {layer.image} …")
    command = [
        "docker", "buildx", "build", "--load", "--tag", image.name, "--build-arg", f"IMAGE={layer.image}",
        "--build-arg", f"FOLDER={config.working_dir or '/'}", "--build-arg", f"IMPORTS={imports}",
        "--build-arg", f"RUNS_AS={runs_as}", "--label", f"{INPUTS}={under.id}", str(layer.folder),
    ]  # fmt: skip
    run_command(command, f"building a layer on {layer.image}", f"The layer on {layer.image} could not be built.", say)


def _build_own(image: OwnImage, layer: Layer, server: OwnImage, under: str, say: Say) -> None:
    problem = "The image of your application could not be built."
    say(f"Building the image of your application with {' '.join(layer.server)} …")
    began = time.monotonic()
    command = [
        "docker", "buildx", "build", "--load", "--tag", image.name, "--build-arg", f"SERVER={server.name}",
        "--label", f"{INPUTS}={under}", "--secret", f"id=ca_bundle,src={ca_bundle()}", str(layer.folder),
    ]  # fmt: skip
    run_command(command, "building the image of your application", problem, say)
    say(f"Built it in {time.monotonic() - began:.0f} s.")


def make_base_images_ready(say: Say, images: Iterable[OwnImage] = ()) -> None:
    """Pull the base images that are missing, or build stand-ins if the pull fails.

    A stand-in of k6 takes minutes, so ``images`` are built meanwhile; no image is built on k6.
    """
    for image in BASE_IMAGES:
        if DockerClient().image.exists(image):
            continue
        began = time.monotonic()
        if not _pull(image, say):
            if image == K6:
                with running_beside(_k6_stand_in(), f"building {K6}", _NEITHER.format(K6), say):
                    build_images(images, say)
            else:
                _build_debian_stand_in(say)
        say(f"{image} is ready after {time.monotonic() - began:.0f} s.")


def _pull(image: str, say: Say) -> bool:
    """Pull a base image, and return whether this was possible."""
    say(f"Pulling {image} …")
    pulling = ["docker", "image", "pull", "--quiet", PINNED[image]]
    try:
        run_command(pulling, f"pulling {image}", "", say)
        DockerClient().image.tag(PINNED[image], image)  # the name that FROM and Compose use, also for a stand-in
    except (DockerException, LabError) as error:
        reason = last_line(error) if isinstance(error, DockerException) else error.hint.splitlines()[-1]
        say(f"{image} could not be pulled ({reason}). Building a stand-in from package registries …")
        return False
    return True


_NEITHER = "The image {} can be neither pulled nor built on this machine."


def _build_debian_stand_in(say: Say) -> None:
    problem = _NEITHER.format(DEBIAN)
    if not is_debian_root():
        raise LabError(
            problem,
            hint="On a machine that reaches a registry: "
            f"docker pull {PINNED[DEBIAN]} && docker tag {PINNED[DEBIAN]} {DEBIAN} "
            f"&& docker save {DEBIAN} --output image.tar\nOn this machine: docker load --input image.tar",
        )
    run_command([str(TOOLS / "build-debian.sh"), DEBIAN], f"building {DEBIAN}", problem, say)


def _k6_stand_in() -> list[str]:
    """Return the command that builds a stand-in of k6."""
    return [
        "docker", "buildx", "build", "--load", "--tag", K6, "--build-arg", f"K6_RELEASE={K6_RELEASE}",
        "--secret", f"id=ca_bundle,src={ca_bundle()}", "--file", str(TOOLS / "k6.Dockerfile"), str(TOOLS),
    ]  # fmt: skip


def origin(image: str) -> str:
    """Return in words where a base image came from."""
    if stand_in := label(image, STAND_IN):
        return f"stand-in from the {stand_in}"
    pinned = PINNED[image].split("@")[1]
    return "pulled as pinned" if any(one.endswith(f"@{pinned}") for one in digests(image)) else "not the pinned image"


def digests(image: str) -> list[str]:
    """Return the digests of an image in its registry; an empty list for a stand-in."""
    return [] if label(image, STAND_IN) else DockerClient().image.inspect(image).repo_digests or []


def contents(image: str) -> str:
    """Return what names the contents of an image: its layers. Its id depends on how an engine stores images."""
    found = DockerClient().image.inspect(image)
    layers = found.root_fs.layers if found.root_fs else None
    return " ".join(layers or [str(found.id)])


def label(image: str, name: str) -> str:
    """Return a label of an image; empty if the image or the label is missing."""
    try:
        return (DockerClient().image.inspect(image).config.labels or {}).get(name, "")
    except NoSuchImage:
        return ""
