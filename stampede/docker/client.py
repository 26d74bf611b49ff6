"""The one way to a container engine: Docker's client, which knows contexts and sockets, with a time-out for each call.

Every client has a session of its own: Ctrl-C in a terminal asks the lab to stop, and does not end its calls.
"""

import asyncio
import json
import os
import signal
import subprocess
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

ANSWERS_WITHIN_S, TOLD_WITHIN_S = 60, 20
"""How long an engine may take to answer, and to tell of itself; an engine that is paused or frozen never does."""
ENDS_WITHIN_S = 5
"""How long a client may take to end after SIGTERM. Then it is killed, with what it has started."""

MISSING = 127
"""The exit code of a client that is not there."""

Role = Literal["servers", "load", "both"]
T = TypeVar("T")


class DockerError(Exception):
    """A call of an engine failed: its exit code (None: no answer in time), and what the client ``said``.

    The error's text is the last line that the client said, because this line names the problem, cut at the end of a
    word after at most 300 characters.
    """

    def __init__(self, said: str, exit_code: int | None = 1) -> None:
        self.said, self.exit_code = said, exit_code
        lines = [line for line in said.strip().splitlines() if line and "--help" not in line]
        line = (lines or ["Docker gave no reason"])[-1]
        super().__init__(line if len(line) <= 300 else f"{line[:299].rpartition(' ')[0]} …")


@dataclass(frozen=True)
class Machine:
    """A machine on which containers run, and the way to its engine. The lab's own engine has no name.

    ``context`` is the name of its Docker context; empty: what Docker's own settings choose. ``cpuset`` has the cores
    that containers may use; empty: all. ``shares_files``: containers can mount folders of the lab's machine.
    """

    name: str = ""
    context: str = ""
    role: Role = "both"
    cpuset: str = ""
    shares_files: bool = True

    @property
    def docker(self) -> list[str]:
        """The beginning of a command for this machine's engine."""
        return ["docker", *(["--context", self.context] if self.context else [])]

    def run(self, *words: str, within_s: float = ANSWERS_WITHIN_S, stdin: bytes = b"") -> str:
        """Return what the engine answers to a command, without asyncio, which starts a thread for it in Python 3.11.

        Raise DockerError if the engine refuses, or is silent for too long.
        """
        try:
            process = subprocess.Popen([*self.docker, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, start_new_session=True)  # fmt: skip
        except OSError as error:
            raise _missing(error) from None
        with process:
            try:
                answer, said = process.communicate(stdin, within_s)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise _silent(within_s) from None
                raise
        if process.returncode:
            raise DockerError(said.decode(errors="replace"), process.returncode)
        return answer.decode(errors="replace").rstrip("\n")

    def told(self, *words: str) -> str:
        """Return what the engine answers to a command; empty if it does not."""
        try:
            return self.run(*words, within_s=TOLD_WITHIN_S)
        except DockerError:
            return ""

    def info(self, within_s: float = TOLD_WITHIN_S) -> dict[str, Any]:
        """Return what the engine says of itself and its machine. Raise DockerError if it does not answer."""
        told: dict[str, Any] = json.loads(self.run("info", "--format", "{{json .}}", within_s=within_s))
        if problems := told.get("ServerErrors"):  # some clients count this as an answer
            raise DockerError("\n".join(problems))
        return told

    def inspect(self, kind: Literal["image", "container"], *names: str) -> list[dict[str, Any]]:
        """Return what the engine knows of images or containers. Raise DockerError if it lacks one of them."""
        return json.loads(self.run(kind, "inspect", *names)) if names else []

    async def call(
        self, *words: str, within_s: float = ANSWERS_WITHIN_S, stdin: bytes = b"", merged: bool = False
    ) -> bytes:
        """Return what the engine answers to a command, with standard error in it if it is ``merged``.

        Raise DockerError if the engine refuses, or is silent for too long. If the caller is cancelled, the client ends.
        """
        return (await self.both(*words, within_s=within_s, stdin=stdin, merged=merged))[0]

    async def both(
        self, *words: str, within_s: float = ANSWERS_WITHIN_S, stdin: bytes = b"", merged: bool = False
    ) -> tuple[bytes, bytes]:
        """Do the same as ``call``, and also return what comes from standard error."""
        process = await self._begin(*words, stdin=PIPE if stdin else DEVNULL, stderr=STDOUT if merged else PIPE)
        try:
            async with asyncio.timeout(within_s):
                answer, said = await process.communicate(stdin or None)
        except TimeoutError:
            raise _silent(within_s) from None
        finally:
            await _end(process)
        if process.returncode:
            raise DockerError((said or answer).decode(errors="replace"), process.returncode)
        return answer, said or b""

    async def events(self, *options: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield each event of the engine as soon as it comes. The engine has ended when this ends."""
        process = await self._begin("events", "--format", "{{json .}}", *options, stdin=DEVNULL, stderr=DEVNULL)
        try:
            assert process.stdout
            async for line in process.stdout:
                yield json.loads(line)
        finally:
            await _end(process)

    async def _begin(self, *words: str, stdin: int, stderr: int) -> asyncio.subprocess.Process:
        """Start the client. A caller who is cancelled meanwhile gets to know the client first, and ends it."""
        beginning = asyncio.ensure_future(asyncio.create_subprocess_exec(
            *self.docker, *words, stdin=stdin, stdout=PIPE, stderr=stderr, start_new_session=True, limit=2**20,
        ))  # fmt: skip
        try:
            return await asyncio.shield(beginning)
        except OSError as error:
            raise _missing(error) from None
        except asyncio.CancelledError:
            await _end(await beginning)
            raise


HERE = Machine()
"""The engine that Docker's own settings choose."""


async def together(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all calls, and then raise the first error, if there is any: no call goes on behind anybody's back."""
    done = await asyncio.gather(*calls, return_exceptions=True)
    if errors := [each for each in done if isinstance(each, BaseException)]:
        raise errors[0]
    return cast("list[T]", done)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a client that has not ended, and what it has started: Compose is a program of its own."""
    for how, within_s in ((signal.SIGTERM, ENDS_WITHIN_S), (signal.SIGKILL, None)):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await process.wait()


def _missing(error: OSError) -> DockerError:
    return DockerError(f"Docker's client cannot be started: {error.strerror}", MISSING)


def _silent(within_s: float) -> DockerError:
    return DockerError(f"it has not answered for {within_s:.0f} s: is it paused, or is its machine?", None)
