"""Read a YAML file into a model, and explain its first mistake: the line, the place, the value, and what is allowed."""

import re
import reprlib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # its stubs do not name it
from yaml.resolver import Resolver

from stampede.errors import WrongUse
from stampede.foreign import read_bytes
from stampede.records.mistakes import PLAIN, Place, Wording, explain, unread

MOST_NODES = 100_000
"""How many values a YAML file may have, if each alias stands for all that it repeats."""
BITS = 63
AnyModel = TypeVar("AnyModel", bound=BaseModel)


class YamlFile:
    """A YAML file: its ``values``, and the line of each of them.

    Raise WrongUse if the file cannot be read, is not valid YAML, or has a key twice in a mapping.
    """

    def __init__(self, path: Path, wording: Wording = PLAIN) -> None:
        self.path = path
        self.wording = wording
        try:
            loader = _Loader(read_bytes(path).decode())
            self._root = loader.get_single_node()
            self.values: Any = None if self._root is None else loader.construct_document(self._root)
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"{path} cannot be read: {unread(error)}.") from None
        except yaml.MarkedYAMLError as error:
            line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            raise WrongUse(f"{path.name}{line}: not valid YAML: {error.problem}") from None
        except yaml.reader.ReaderError as error:
            raise WrongUse(f"{path.name}: not valid YAML: {error.reason} (#x{error.character:04x})") from None
        except RecursionError:
            raise WrongUse(f"{path.name}: not valid YAML: it is nested too deeply") from None

    def read_as(self, model: type[AnyModel]) -> AnyModel:
        """Return the values as a model. Raise WrongUse with the place of the first mistake."""
        try:
            return model.model_validate(self.values)
        except ValidationError as error:
            place, problem = explain(error, model, self.values, self.wording)
            raise self.mistake(problem, *place) from None

    def mistake(self, problem: str, *place: str | int) -> WrongUse:
        """Return the error for a mistake at a place of the file."""
        at = f"{self.path.name}:{self.line_of(place)}: {'.'.join(map(str, place))}" if place else self.path.name
        return WrongUse(f"{at}: {problem}", hint=self.wording.hint)

    def line_of(self, place: Place) -> int:
        """Return the line of a place, or of the nearest enclosing place if the place itself is missing."""
        node, line = self._root, self._root.start_mark.line + 1 if self._root else 0
        for key in place:
            if isinstance(node, yaml.MappingNode):
                found = [(name, value) for name, value in node.value if name.value == str(key)]
                if found:
                    line, node = found[-1][0].start_mark.line + 1, found[-1][1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
                node = node.value[key]
                line = node.start_mark.line + 1
        return line


class _Composer(Composer, SafeConstructor, Resolver, CParser):
    """A safe loader on LibYAML's parser, which is ten times as fast as PyYAML's.

    It composes nodes in Python, where a text that is nested too deeply ends in a RecursionError. It refuses a document
    that is too large with all that its aliases repeat.
    """

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    def compose_document(self) -> yaml.Node | None:
        root = super().compose_document()
        sizes: dict[int, int] = {}

        def size(node: yaml.Node) -> int:
            if id(node) not in sizes:
                sizes[id(node)] = MOST_NODES + 1  # until it is known: an alias in its own value has no end
                inner = node.value if isinstance(node, yaml.CollectionNode) else []
                pairs = isinstance(node, yaml.MappingNode)
                sizes[id(node)] = 1 + sum(size(each) for item in inner for each in (item if pairs else (item,)))
            return sizes[id(node)]

        if root is not None and size(root) > MOST_NODES:
            raise _refused(f"with its aliases it has more than {MOST_NODES:,} values", root)
        return root


class _Loader(_Composer):
    """A loader that names the line of each value that cannot be read, or that could not be written again."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401  # its stubs are wrong
        """Refuse a key that appears twice: PyYAML would silently keep only the last value."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _refused(f"the key {key.value} appears twice", key)
                seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401  # YAML allows any type
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            kind = node.tag.rsplit(":", 1)[-1]
            raise _refused(f"{reprlib.repr(node.value)} cannot be read as {kind}", node) from None
        if isinstance(value, int) and value.bit_length() > BITS:
            raise _refused(f"the number has more than {BITS} bits", node)
        if isinstance(value, str) and (unprintable := _UNPRINTABLE.search(value)):
            raise _refused(f"the text must not contain {unprintable[0]!r}", node)
        return value


def foreign_yaml(text: str) -> list[Any]:
    """Return the documents of YAML that somebody wrote for another program. Raise YAMLError if it cannot be read."""
    found = []
    try:
        loader = _ForeignLoader(text)
        while loader.check_data():  # type: ignore[no-untyped-call]  # its stubs
            found.append(loader.get_data())
    except RecursionError:
        raise yaml.MarkedYAMLError(problem="it is nested too deeply") from None
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError) as error:
        raise yaml.MarkedYAMLError(problem=str(error)) from None  # a value that is none of its type, such as a date
    return found


class _ForeignLoader(_Composer):
    """A loader that takes tags, such as Compose's ``!reset``, for what they stand before."""


def _construct_tagged(loader: _ForeignLoader, suffix: str, node: yaml.Node) -> Any:  # noqa: ANN401  # YAML may hold anything
    if suffix == "reset":
        return None
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else node.value


_ForeignLoader.add_multi_constructor("!", _construct_tagged)
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
