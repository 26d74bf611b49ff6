"""What a POSIX shell would start: the commands of a script in order, with known variables in their place.

tree-sitter parses the script; nothing is run. Every branch of a condition counts, because nobody knows which is taken.
"""

import ast
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

_PARSER = Parser(Language(tree_sitter_bash.language()))
_EXPANSION = re.compile(r"\$(?:(\w+|[@*#?])|\{(\w+)(?:(:?[-=+?])(.*))?\})", re.DOTALL)
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}  # fmt: skip


class Started(NamedTuple):
    """A command that a script starts. ``folder`` is where a ``cd`` has led, relative to the start; empty: nowhere."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    line: int


class Shell:
    """A shell with variables and arguments. A word that only a running shell knows stays as it is written."""

    def __init__(self, environment: Mapping[str, str], arguments: Sequence[str] = (), cores: int = 1) -> None:
        """Take the environment, the arguments of the script (``$1``, …), and how many cores ``nproc`` prints."""
        self.environment = dict(environment)
        self._arguments = [*arguments]
        self._cores, self._folder = cores, ""

    def run(self, text: str) -> Iterator[Started]:
        """Yield the commands of a script."""
        yield from self._statement(_PARSER.parse(text.encode()).root_node)

    def words(self, text: str) -> list[str]:
        """Return the words of one command line; of several commands, those of the last."""
        return next((started.words for started in reversed([*self.run(text)])), [])

    def _statement(self, node: Node) -> Iterator[Started]:
        match node.type:
            case "command":
                yield from self._command(node)
            case "variable_assignment":
                self._assign(node, self.environment)
            case "declaration_command":
                for part in node.named_children:
                    if part.type == "variable_assignment":
                        self._assign(part, self.environment)
            case "function_definition" | "comment" | "heredoc_redirect" | "test_command":
                return
            case _:
                for part in node.named_children:
                    yield from self._statement(part)

    def _assign(self, node: Node, environment: dict[str, str]) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name:
            environment[_text(name)] = " ".join(self._expanded(value)) if value else ""

    def _command(self, node: Node) -> Iterator[Started]:
        environment: dict[str, str] = {}
        words: list[str] = []
        for part in node.named_children:
            if part.type == "variable_assignment":
                self._assign(part, environment)
            elif not part.type.endswith("redirect"):
                words += self._expanded(part)
        while words[:1] in (["exec"], ["command"]):
            words = [word for place, word in enumerate(words[1:]) if place or word not in ("-a", "-c", "-l", "--")]
        match words:
            case ["set", "--", *arguments]:
                self._arguments = arguments
            case ["cd", folder]:
                self._folder = os.path.normpath(os.path.join(self._folder, folder))  # noqa: PTH118  # of another machine
            case [_, *_]:
                yield Started(words, self.environment | environment, self._folder, node.start_point[0] + 1)

    def _expanded(self, node: Node) -> list[str]:  # noqa: PLR0911  # a case for each kind of node
        """Return the words that a part of a command becomes: a variable without quotes may become several."""
        match node.type:
            case "command_name":
                return [word for part in node.named_children for word in self._expanded(part)]
            case "raw_string":
                return [_text(node)[1:-1]]
            case "ansi_c_string":
                return [_text(node)[2:-1]]
            case "string":
                if _text(node) == '"$@"':
                    return self._arguments
                return ["".join(self._part(part) for part in _pieces(node))]
            case "concatenation":
                return ["".join("".join(self._expanded(part)) for part in node.children)]
            case "simple_expansion" | "expansion" | "arithmetic_expansion" | "command_substitution":
                part = self._part(node)
                return self._arguments if _text(node) == "$@" else [part] if part == _text(node) else part.split()
            case _:
                return [re.sub(r"\\(.)", r"\1", _text(node))]

    def _part(self, node: Node) -> str:
        text = _text(node)
        match node.type:
            case "simple_expansion" | "expansion":
                return self.expand(text)
            case "arithmetic_expansion":
                return self._computed(text[3:-2]) or text
            case "command_substitution":
                return str(self._cores) if re.fullmatch(r"\$\(\s*nproc[^|;&)]*\)|`nproc`", text) else text
            case _:
                return re.sub(r'\\([$"\\`])', r"\1", text)

    def expand(self, text: str) -> str:
        """Return a text with the values of its variables: ``$X``, ``${X}``, ``${X:-otherwise}``."""
        found = _EXPANSION.fullmatch(text)
        if not found:
            return text
        name, operator_, otherwise = found[1] or found[2], found[3] or "", found[4] or ""
        if name in "@*":
            return " ".join(self._arguments)
        if name.isdecimal() and 0 < int(name) <= len(self._arguments):
            return self._arguments[int(name) - 1]
        value = self.environment.get(name)
        if operator_.endswith("+"):
            return self._inner(otherwise) if value else ""
        if value is None or (not value and operator_.startswith(":")):
            return self._inner(otherwise) if operator_[-1:] in ("-", "=") else (value if value is not None else text)
        return value

    def _inner(self, text: str) -> str:
        words = self.words(f"x {text}")
        return " ".join(words[1:])

    def _computed(self, text: str) -> str | None:
        plain = re.sub(r"\$\(\s*nproc[^)]*\)", str(self._cores), text)
        plain = re.sub(r"\$?\b([A-Za-z_]\w*)\b", lambda name: self.environment.get(name[1], "?"), plain)
        try:
            return str(int(_arithmetic(ast.parse(plain.strip(), mode="eval").body)))
        except (ValueError, SyntaxError, ZeroDivisionError):
            return None


def _arithmetic(node: ast.expr) -> float:
    """Return the value of an expression of numbers. Raise ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_arithmetic(node.left), _arithmetic(node.right))
    raise ValueError(ast.unparse(node))


def _pieces(node: Node) -> Iterator[Node]:
    """Yield the parts of a string without its quotes."""
    yield from (part for part in node.children if part.type != '"')


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")
