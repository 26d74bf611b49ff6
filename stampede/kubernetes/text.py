"""Write documents as YAML."""

from collections.abc import Iterable

import yaml

from stampede.kubernetes.box import Document


def as_yaml(documents: Iterable[Document]) -> str:
    """Return documents as one text of YAML. Texts of several lines, such as scripts, keep their lines."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, explicit_start=True)


class _Dumper(yaml.SafeDumper):
    """A dumper that repeats what is equal, instead of referring to it, so that each document is complete."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the signature is PyYAML's
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
