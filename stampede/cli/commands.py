"""Commands that say what is wrong with a command line: the option, the value, and what is allowed."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from stampede.errors import WrongUse
from stampede.records.words import nearest_first


class Command(TyperCommand):
    """A command with options and arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's signature
        """Return no words. Raise WrongUse for an unknown option, a wrong value, and words that the command lacks."""
        ctx.allow_extra_args = True
        if further := _parse(super().parse_args, ctx, args):
            raise WrongUse(f"{ctx.command_path} does not take {' '.join(further)}.", hint=f"{ctx.command_path} --help")
        return []


class Commands(TyperGroup):
    """Commands by their names; without a name, they show their help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's signature
        """Return the words that name a command. Raise WrongUse for an unknown option."""
        return _parse(super().parse_args, ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  # typer's signature
        """Return the command that the first word names. Raise WrongUse if there is none."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  # needed only for an error message

            meant = [f"{ctx.command_path} {name}" for name in get_close_matches(args[0], self.commands)]
            raise WrongUse(
                f"There is no command {args[0]!r}.", hint=", or ".join(meant) or f"{ctx.command_path} --help"
            )
        return super().resolve_command(ctx, args)


class LazyCommands(Mapping[str, Any]):
    """Commands by their names. The module of a command is imported when the command is asked for."""

    def __init__(self, places: Mapping[str, Iterable[str]]) -> None:
        self._places = {
            name: (module, function or name.replace("-", "_"))
            for module, spelled in places.items()
            for name, _, function in (each.partition(":") for each in spelled)
        }
        self._built: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  # typer has its own classes
        if name not in self._built:
            module, function = self._places[name]
            called = getattr(import_module(module), function)
            app = typer.Typer(rich_markup_mode=None, add_completion=False)
            # what its docstring says after "e.g." is the example at the end of its help
            says, _, rest = (called.__doc__ or "").partition(", e.g. ")
            example, _, more = rest.partition("\n")
            text = "\n".join(filter(None, (f"{says}.", more.strip() and f"\n{more.strip()}")))
            app.command(name=name, help=text, epilog=f"Example: {example.removesuffix('.')}", cls=Command)(called)
            self._built[name] = typer.main.get_command(app)
            self._built[name].name = name
        return self._built[name]


def _parse(parse: Callable[[Any, list[str]], list[str]], ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
    try:
        return parse(ctx, args)
    except TyperException as error:
        raise _wrong_option(error, ctx) from None


def _wrong_option(error: TyperException, ctx: Any) -> WrongUse:  # noqa: ANN401  # typer has its own classes
    """Return what is wrong with an option of a command."""
    options = {name: one for one in ctx.command.get_params(ctx) for name in one.opts if name.startswith("-")}
    name: str = getattr(error, "option_name", "")
    option: Any = options.get(name) or getattr(error, "param", None)
    if option is None:
        problem = f"{ctx.command_path} has no option {name}; it has {nearest_first(name, list(options))}."
    elif errors := getattr(error.__cause__, "errors", None):  # pydantic's
        problem = f"{option.opts[0]} {errors()[0]['input']} must be {_allowed(option)}."
    else:
        problem = f"{name} takes no value." if option.is_flag else f"{name} needs a value. {option.help}"
    return WrongUse(problem, hint=f"{ctx.command_path} --help")


def _allowed(option: Any) -> str:  # noqa: ANN401  # typer has its own classes
    """Return which numbers an option takes, in words."""
    from stampede.records.mistakes import allowed_by  # noqa: PLC0415  # loading pydantic takes longer than --help

    bounds = {"minimum": option.min, "maximum": option.max}
    kind = "integer" if option.type_descriptor.annotation is int else "number"
    return allowed_by({"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}})
