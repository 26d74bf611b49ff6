"""The command line ``stampede``, which nearly every make target calls."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from stampede import __version__
from stampede.cli.help import GroupedCommands
from stampede.errors import LabError, WrongUse
from stampede.interruption import heed_signals
from stampede.terminal import out, tell

app = typer.Typer(
    cls=GroupedCommands,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A laboratory that shows which worker served each request, "
    "and which requests waited while another worker had a free thread.",
)
OF_EXTRA = (
    "altair", "dockerfile_parse", "jinja2", "markupsafe", "numba", "packaging", "scipy", "vl_convert",
)  # fmt: skip
"""The packages that the core lacks, and the extra ``lab`` brings."""


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"stampede {__version__}", markup=False)
        raise typer.Exit


@app.callback()
def _begin(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> NoReturn:
    """Run the command line and exit: 0 measured, 1 failed or invalid, 2 wrong use, 130 interrupted."""
    from stampede.docker import processor  # noqa: PLC0415

    if sys.argv[1:2] != ["doctor"] and (lack := processor.problem()):
        tell(LabError(lack, hint=processor.WAY_OUT))
        sys.exit(1)
    for name in [name for name in os.environ if name.startswith("LAB_")]:
        del os.environ[name]  # a factor must come from the experiment, never from the user's shell
    heed_signals()
    try:
        code = app(prog_name="stampede", standalone_mode=False)
    except typer.Abort:
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_EXTRA:
            raise
        need = f"stampede {' '.join(sys.argv[1:2])} needs the package {error.name}, which is not installed."
        tell(LabError(need, hint="pip install 'stampede-lab[lab]'"))
        sys.exit(1)
    except LabError as error:
        tell(error)
        sys.exit(2 if isinstance(error, WrongUse) else 1)
    except Exception as error:
        client = sys.modules.get("stampede.docker.client")  # most commands do without it
        if not client or not isinstance(error, client.DockerError):
            raise
        tell(LabError(f"The container engine refused or stopped answering: {error}", hint="stampede doctor"))
        sys.exit(1)
    sys.exit(code or 0)
