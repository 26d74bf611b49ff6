"""How a page of the lab is made: a template, the style that all pages share, and scripts. A page needs nothing else.

The lab's apps keep templates and scripts of their own beside their code, and may use those of the report as well.
"""

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

_PACKAGES = ("stampede.report.page", "stampede.report.timeline")


def render(name: str, *scripts: str, app: str = "", fetches: bool = False, **values: object) -> str:
    """Return a page made of a template, which extends ``base.html``, and of scripts.

    Templates and scripts are looked for first in the package ``app``, and then among those of the report.
    ``fetches``: the scripts may ask the server of the page for more; a page that is a file never needs this.
    """
    code = script(*scripts, app=app) if scripts else Markup("")
    digest = b64encode(sha256(code.encode()).digest()).decode()  # the page runs only this script
    rules = "default-src 'none'; " + (f"script-src 'sha256-{digest}'; " if code else "")
    rules += "style-src 'unsafe-inline'; img-src data:" + ("; connect-src 'self'" if fetches else "")
    style = Markup(_text("page.css"))  # noqa: S704  # our own file
    page = _environment(app).get_template(name)
    return page.render(content_policy=rules, style=style, script=code, fetches=fetches, **values)


@cache
def _environment(app: str) -> Environment:
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, ".") for package in (app, *_PACKAGES) if package]),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
    )


@cache
def script(*names: str, app: str = "") -> Markup:
    """Return files of the package ``app`` or of the report as one script, whose names stay within it."""
    parts = "\n".join(_text(name, app) for name in names)
    return Markup(f"\n'use strict';\n(() => {{\n{parts}}})();\n")  # noqa: S704  # our own files


def script_json(values: object) -> Markup:
    """Return values as JSON that a page can hold in a script element."""
    text = json.dumps(values, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704  # holds no "<"


def _text(name: str, app: str = "") -> str:
    loader = _environment(app).loader
    assert loader
    return loader.get_source(_environment(app), name)[0]
