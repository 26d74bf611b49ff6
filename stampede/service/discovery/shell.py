"""What a POSIX shell would start: the commands of a script in order, with known variables in their place.

tree-sitter parses the script; nothing is run. If the values in a condition are known, the branch that it takes counts;
else every branch does, and a variable to which they give different values is not known.
"""

import ast
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from stampede.service.discovery.arithmetic import computed
from stampede.service.discovery.settings import setting_of

_PARSER = Parser(Language(tree_sitter_bash.language()))
_EXPANSION = re.compile(r"\$(?:(\w+|[@*#?])|\{(\w+)(?:(:?[-=+?]|##?|%%?|:(?=\d)|,,|\^\^)(.*))?\})", re.DOTALL)
_FOR_PRODUCTION = re.compile(r"prod|live|web|serve", re.IGNORECASE)
"""What a condition asks for that is true only where the service runs."""
DEEPEST, MOST_CALLS = 20, 200
"""How many functions and included scripts are followed within each other, and in all."""
_UNKNOWN = re.compile(r"\$\(|`")
"""What only a running shell knows, although it has spaces in it."""
_ARRAY = re.compile(r'"?\$\{(\w+)\[[@*]\]\}"?')
_CORES = re.compile(
    r"\$\(\s*(?:nproc\b[^|;&)]*|getconf _NPROCESSORS_ONLN|grep -c \^?processor /proc/cpuinfo)\s*\)|`nproc`"
)
_COMPARED: dict[str, Callable[[str, str], bool]] = {
    "=": fnmatchcase, "==": fnmatchcase, "!=": lambda left, right: not fnmatchcase(left, right),
    "-eq": lambda left, right: int(left) == int(right), "-ne": lambda left, right: int(left) != int(right),
    "-gt": lambda left, right: int(left) > int(right), "-ge": lambda left, right: int(left) >= int(right),
    "-lt": lambda left, right: int(left) < int(right), "-le": lambda left, right: int(left) <= int(right),
}  # fmt: skip

_SUM = re.compile(r"""\$\(expr (.*)\)|\$\(echo ["']?([^"'|]*)["']? ?\| ?bc\)""")
"""A command that prints the value of an expression."""


class Started(NamedTuple):
    """A command that a script starts. ``folder`` is where a ``cd`` has led, relative to the start; empty: nowhere."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    line: int
    given: dict[str, str]
    """The variables that the script itself gives to the command, or exports."""
    is_repeated: bool = False
    """Whether a loop may start the command several times."""
    is_unlikely: bool = False
    """Whether a condition excludes the command if all variables that no file sets are empty."""


class Shell:
    """A shell with variables and arguments. A word that only a running shell knows stays as it is written."""

    def __init__(
        self, environment: Mapping[str, str], arguments: Sequence[str] | None = (), cores: int = 1,
        read: Callable[[str], str] = lambda _: "", has: Callable[[str], bool | None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Take the environment, the arguments of the script (``$1``, …), and how many cores ``nproc`` prints.

        If ``arguments`` are None, nobody knows them.
        ``read`` returns the text of a file that the script includes; ``has`` says whether there is a file or folder.
        """
        self.environment = dict(environment)
        self._arguments, self._has_arguments = [*(arguments or ())], arguments is not None
        self._cores, self._read, self._has, self._folder = cores, read, has, ""
        self._arrays: dict[str, list[str]] = {}
        self._functions: dict[str, Node] = {}
        self._exported: set[str] = set()
        self._has_ended = False
        self._calls = self._depth = self._called = 0
        self._unset_is_empty = False

    def run(self, text: str) -> Iterator[Started]:
        """Yield the commands of a script."""
        yield from self._statement(_PARSER.parse(text.encode()).root_node)

    def words(self, text: str) -> list[str]:
        """Return the words of one command line; of several commands, those of the last."""
        return next((started.words for started in reversed([*self.run(text)])), [])

    def _statement(self, node: Node) -> list[Started]:  # noqa: PLR0911  # a case for each kind of statement
        match node.type:
            case _ if self._has_ended:
                return []
            case "command":
                return self._command(node)
            case "variable_assignment":
                return self._assign(node, self.environment)
            case "declaration_command":
                if _text(node).startswith("export"):
                    self._exported |= {re.split(r"[+=]", _text(part))[0] for part in node.named_children}
                return [each for part in node.named_children if part.type == "variable_assignment"
                        for each in self._assign(part, self.environment)]  # fmt: skip
            case "if_statement":
                return self._if(node.children)
            case "case_statement":
                return self._case(node)
            case "list":
                return self._list(node)
            case "while_statement" | "for_statement" | "c_style_for_statement":
                begun = self._either([node.named_children[-1:], []])
                is_for = node.type != "while_statement"  # which starts the same server again
                return [each._replace(is_repeated=each.is_repeated or is_for) for each in begun]
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                self._functions |= {_text(name): body} if name and body else {}
                return []
            case "comment" | "heredoc_redirect" | "test_command":
                return []
            case _:
                return self._all(node.named_children)

    def _all(self, nodes: Sequence[Node]) -> list[Started]:
        return [started for node in nodes for started in self._statement(node)]

    def _if(self, parts: Sequence[Node]) -> list[Started]:
        """Return the commands of the branch that an if, elif or else takes, or of all if nobody knows."""
        kinds = [part.type for part in parts]
        if "then" not in kinds:
            return self._all([part for part in parts if part.is_named])
        then = kinds.index("then")
        others = [place for place, kind in enumerate(kinds) if kind in ("elif_clause", "else_clause")]
        inner = [part for part in parts[then + 1 : others[0] if others else None] if part.is_named]
        is_true = self._truth(next(part for part in parts if part.is_named))
        if is_true:
            return self._all(inner)

        def further() -> list[Started]:
            return self._if([*parts[others[0]].children, *parts[others[0] + 1 :]] if others else [])

        if is_true is False:
            return further()
        return self._either([inner, further], self._is_likely(next(part for part in parts if part.is_named)))

    def _is_likely(self, condition: Node) -> bool | None:
        """Return whether a condition is true if all variables that no file sets are empty; None: not known.

        What asks for production is true where the service runs, though no file says so.
        """
        if _FOR_PRODUCTION.search(_text(condition)):
            return None
        self._unset_is_empty = True
        is_true = self._truth(condition)
        self._unset_is_empty = False
        return is_true

    def _case(self, node: Node) -> list[Started]:
        """Return the commands of the item that a case takes, or of all if nobody knows."""
        value = node.child_by_field_name("value")
        said = " ".join(self._expanded(value)) if value else "$"
        items = [part for part in node.named_children if part.type == "case_item"]
        inner = [
            [part for part in item.named_children if part not in item.children_by_field_name("value")] for item in items
        ]
        is_unknown = not self._has_arguments and value is not None and "@" in _text(value)
        if "$" in said or "`" in said or is_unknown:
            return self._either([*inner, []])
        for item, statements in zip(items, inner, strict=True):
            if any(fnmatchcase(said, "".join(self._expanded(each))) for each in item.children_by_field_name("value")):
                return self._all(statements)
        return []

    def _list(self, node: Node) -> list[Started]:
        """Return the commands of ``a && b`` or ``a || b``; b counts unless the condition a excludes it."""
        left, *right = node.named_children
        begun = self._statement(left)
        is_true = self._truth(left)
        if is_true is ("||" in [part.type for part in node.children]):
            return begun
        return begun + (
            self._all(right) if is_true is not None or left.type == "command"
            else self._either([right, []], self._skips(node, left))
        )  # fmt: skip

    def _skips(self, node: Node, left: Node) -> bool | None:
        """Return whether ``a && b`` or ``a || b`` comes to b if all variables that no file sets are empty."""
        is_likely = self._is_likely(left)
        return is_likely if is_likely is None else is_likely is ("&&" in [part.type for part in node.children])

    def _either(
        self, branches: Sequence[Sequence[Node] | Callable[[], list[Started]]], is_first: bool | None = None
    ) -> list[Started]:
        """Return the commands of all branches, of which nobody knows which is taken.

        ``is_first``: whether the first of two is the likely one, whose commands come first and whose values count.
        """
        before, arguments, arrays = dict(self.environment), self._arguments, dict(self._arrays)
        begun: list[Started] = []
        results: list[dict[str, str]] = []
        ordered = branches if is_first is not False else [*reversed(branches)]
        for branch in ordered:
            self.environment, self._arguments = dict(before), arguments
            commands = branch() if callable(branch) else self._all(branch)
            is_unlikely = is_first is not None and bool(results)
            begun += [each._replace(is_unlikely=each.is_unlikely or is_unlikely) for each in commands]
            results.append(self.environment)
            arrays = arrays if results[1:] or is_first is None else dict(self._arrays)
            self._has_ended = False
        if is_first is not None:
            self.environment, self._arguments, self._arrays = results[0], arguments, arrays
            return begun
        said = {name: {result[name] for result in results if name in result} for result in results for name in result}
        self.environment = {name: next(iter(values)) for name, values in said.items() if len(values) == 1}
        self._arguments = arguments
        return begun

    def _truth(self, node: Node) -> bool | None:
        """Return whether a condition is true; None: only a running shell knows."""
        inner = [part for part in node.named_children if part.type != "test_operator"]
        match node.type:
            case "test_command" | "parenthesized_expression":
                return self._truth(inner[0]) if inner else None
            case "negated_command":
                known = self._truth(inner[0])
                return None if known is None else not known
            case "command":
                return {"true": True, "false": False}.get(_text(node))
            case "list" | "binary_expression" | "unary_expression":
                return self._comparison(node, inner)
            case _:
                return None

    def _comparison(self, node: Node, inner: Sequence[Node]) -> bool | None:
        signs = [_text(part) for part in node.children if not part.is_named or part.type == "test_operator"]
        sign = signs[0] if signs else ""
        if sign in ("&&", "||", "-a", "-o"):
            known = [self._truth(part) for part in inner]
            decides = sign in ("||", "-o")
            return decides if decides in known else None if None in known else not decides
        if sign == "!":
            is_true = self._truth(inner[0])
            return None if is_true is None else not is_true
        said = ["".join(self._expanded(part)) for part in inner]
        if any("$" in each or "`" in each for each in said):
            return None
        if sign in ("-f", "-e", "-d", "-r", "-x", "-s"):
            return self._has(said[0])
        with suppress(ValueError, IndexError, KeyError):
            return (
                {"-z": not said[0], "-n": bool(said[0])}[sign] if sign in ("-z", "-n") else _COMPARED[sign](*said[:2])
            )
        return None

    def _assign(self, node: Node, environment: dict[str, str]) -> list[Started]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        adds = "+=" in [part.type for part in node.children]
        if name and value and value.type == "array":
            words = [word for part in value.named_children for word in self._expanded(part)]
            self._arrays[_text(name)] = [*(self._arrays.get(_text(name), []) if adds else []), *words]
        elif name:
            said = " ".join(self._expanded(value)) if value else ""
            environment[_text(name)] = (environment.get(_text(name), "") if adds else "") + said
        return []

    def _command(self, node: Node) -> list[Started]:
        environment: dict[str, str] = {}
        words: list[str] = []
        for part in node.named_children:
            if part.type == "variable_assignment":
                self._assign(part, environment)
            elif not part.type.endswith("redirect"):
                words += self._expanded(part)
        is_last = words[:1] == ["exec"]
        while words[:1] in (["exec"], ["command"], ["env"]):
            words = [
                word for place, word in enumerate(words[1:]) if place or word not in ("-a", "-c", "-l", "--", "-i")
            ]
            while words and (said := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", words[0], re.DOTALL)):
                environment[said[1]] = said[2]
                words = words[1:]
        begun = self._starts_of(words, environment, node.start_point[0] + 1)
        self._has_ended = self._has_ended or (is_last and bool(words)) or words[:1] == ["exit"]
        return begun

    def _starts_of(self, words: list[str], environment: dict[str, str], line: int) -> list[Started]:
        """Return what a command starts: itself, or the commands of its function or of the script that it includes."""
        match words:
            case ["set", "--", *arguments]:
                self._arguments = arguments
            case ["shift", *count]:
                self._arguments = self._arguments[int(count[0]) if count and count[0].isdecimal() else 1 :]
            case ["cd", folder]:
                self._folder = os.path.normpath(os.path.join(self._folder, folder))  # noqa: PTH118  # of another machine
            case ["source" | ".", name, *_] if text := self._read(name):
                return self._run(text)
            case [name, *arguments] if name in self._functions and self._depth < DEEPEST and self._calls < MOST_CALLS:
                return self._call(name, arguments)
            case ["eval", *texts]:
                return self._run(" ".join(texts))
            case ["exit" | "return" | "break" | "continue" | ":" | "true" | "false", *_]:
                return []
            case [_, *_]:
                exported = {name: self.environment[name] for name in self._exported if name in self.environment}
                return [Started(words, self.environment | environment, self._folder, line, exported | environment)]
        return []

    def _call(self, name: str, arguments: list[str]) -> list[Started]:
        before, self._arguments = self._arguments, arguments
        self._called += 1
        begun = self._within(lambda: self._statement(self._functions[name]))
        self._called -= 1
        self._arguments = before
        return begun

    def _run(self, text: str) -> list[Started]:
        """Return what another text starts as part of this script."""
        return self._within(lambda: [*self.run(text)])

    def _within(self, begin: Callable[[], list[Started]]) -> list[Started]:
        """Return what a function or an included text starts; nothing if there are too many."""
        self._calls += 1
        if self._depth >= DEEPEST or self._calls > MOST_CALLS:
            return []
        self._depth += 1
        begun = begin()
        self._depth -= 1
        return begun

    def _expanded(self, node: Node) -> list[str]:  # noqa: PLR0911  # a case for each kind of node
        """Return the words that a part of a command becomes: a variable without quotes may become several."""
        if (array := _ARRAY.fullmatch(_text(node))) and array[1] in self._arrays:
            return self._arrays[array[1]]
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
                return self._arguments if _text(node) == "$@" else [part] if _UNKNOWN.search(part) else part.split()
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
                return self._output(text)
            case _:
                return re.sub(r'\\([$"\\`])', r"\1", text)

    def expand(self, text: str) -> str:  # noqa: PLR0911  # a case for each kind of variable
        """Return a text with the values of its variables: ``$X``, ``${X}``, ``${X:-otherwise}``."""
        found = _EXPANSION.fullmatch(text)
        if not found:
            return text
        name, operator_, otherwise = found[1] or found[2], found[3] or "", found[4] or ""
        if (name in "@*#" or name.isdecimal()) and not self._has_arguments and not self._called:
            return text
        if name in "@*":
            return " ".join(self._arguments)
        if name == "#":
            return str(len(self._arguments))
        if name.isdecimal() and int(name):
            value = (
                self._arguments[int(name) - 1]
                if int(name) <= len(self._arguments)
                else None
                if operator_[-1:] in ("-", "=", "+", "?")
                else ""
            )
        else:
            value = self.environment.get(name)
        if value is None and self._unset_is_empty:
            value = ""
        if operator_[:1] in ("#", "%", ",", "^") or operator_ == ":":
            return text if value is None else _cut(value, operator_, otherwise)
        if operator_.endswith("+"):
            return self._inner(otherwise) if value else ""
        if value is None or (not value and operator_.startswith(":")):
            if operator_[-1:] == "=":
                self.environment[name] = self._inner(otherwise)
            return self._inner(otherwise) if operator_[-1:] in ("-", "=") else (value if value is not None else text)
        return value

    def _inner(self, text: str) -> str:
        words = self.words(f"x {text}")
        return " ".join(words[1:])

    def _output(self, text: str) -> str:
        """Return what a command that counts cores prints; else the command."""
        if _CORES.fullmatch(text):
            return str(self._cores)
        if found := _SUM.fullmatch(text):
            return self._computed((found[1] or found[2]).replace("\\*", "*").replace("'*'", "*")) or text
        if found := re.fullmatch(r"""\$\(python[\d.]* -c (["']).*\bprint\((.*)\)\1\)""", text, re.DOTALL):
            with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                printed = setting_of(ast.parse(found[2], mode="eval").body, {}, self.environment, self._cores)
                return str(printed.value) if printed else text
        return text

    def _computed(self, text: str) -> str | None:
        plain = _CORES.sub(str(self._cores), text)
        plain = re.sub(r"\$\{[^{}]*\}", lambda found: self.expand(found[0]), plain)
        return computed(plain, self.environment)


def _cut(value: str, sign: str, argument: str) -> str:
    """Return a value as ``${X#pattern}``, ``${X%pattern}``, ``${X:from:count}``, ``${X,,}`` or ``${X^^}`` cut it."""
    if sign in (",,", "^^"):
        return value.lower() if sign == ",," else value.upper()
    if sign == ":":
        start, _, count = argument.partition(":")
        return value[int(start) :][: int(count) if count.isdecimal() else None] if start.isdecimal() else value
    lengths = range(len(value) + 1) if len(sign) == 1 else range(len(value), -1, -1)
    for length in lengths:
        part = value[:length] if sign[0] == "#" else value[len(value) - length :]
        if fnmatchcase(part, argument):
            return value[length:] if sign[0] == "#" else value[: len(value) - length]
    return value


def _pieces(node: Node) -> Iterator[Node]:
    """Yield the parts of a string without its quotes."""
    yield from (part for part in node.children if part.type != '"')


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def variables_of(text: str) -> dict[str, str]:
    """Return variables that a line gives as a shell would: ``A=1 B="two words"``, or ``"A=1" "B=two words"``."""
    with suppress(ValueError):
        pairs = (word.partition("=") for word in shlex.split(text))
        return {name: value for name, equals, value in pairs if name and equals}
    return {}
