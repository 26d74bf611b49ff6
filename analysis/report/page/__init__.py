"""What the lab's pages are made of: templates, the style that they share, and scripts. A page needs nothing else."""

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup


@cache
def template(name: str) -> Template:
    """Return a template of analysis/report/templates."""
    environment = Environment(
        loader=PackageLoader("analysis.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(name)


def style() -> Markup:
    """Return the style of all pages."""
    return Markup(_text("page.css"))  # noqa: S704  # our own file


@cache
def script(*names: str) -> Markup:
    """Return these files as one script, whose names stay within it."""
    parts = "\n".join(_text(name) for name in names)
    return Markup(f"\n'use strict';\n(() => {{\n{parts}}})();\n")  # noqa: S704  # our own files


def policy(allowed: Markup) -> str:
    """Return the content security policy of a page: it runs only this script, and asks the network for nothing."""
    digest = b64encode(sha256(allowed.encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"


def _text(name: str) -> str:
    return (files("analysis.report.page") / name).read_text(encoding="utf-8")
