"""Write what follows from the declarations of the load scripts: python -m lab.experiment.loads, in the lab's folder.

It writes the .env file beside each script, for people who start the script by hand, and the tables of scripts in
docs/extending.md.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from lab.experiment.loads.clients import CLIENT_SCRIPTS
from lab.experiment.loads.k6 import K6_SCRIPTS
from lab.experiment.loads.script import LoadScript
from lab.paths import CLIENTS, K6, ROOT

EXTENDING = ROOT / "docs" / "extending.md"


def dependent_files() -> Iterator[tuple[Path, str]]:
    """Yield each file that follows from the declarations, and the text that it must have."""
    extending = EXTENDING.read_text(encoding="utf-8")
    for folder, what, scripts in ((K6, "what it sends", K6_SCRIPTS), (CLIENTS, "what it does", CLIENT_SCRIPTS)):
        for name, script in scripts.items():
            yield (folder / name).with_suffix(".env"), script.env_file(folder / name)
        extending = _with_table(extending, folder.name, what, scripts)
    yield EXTENDING, extending


def _with_table(text: str, folder: str, what: str, scripts: Mapping[str, LoadScript]) -> str:
    begin, end = f"<!-- {folder} -->\n", f"<!-- /{folder} -->"
    before, _, rest = text.partition(begin)
    rows = [f"| script in `{folder}/` | {what} |", "| --- | --- |"]
    rows += [f"| `{name}` | {script.sends} |" for name, script in scripts.items()]
    return before + begin + "".join(f"{row}\n" for row in rows) + end + rest.partition(end)[2]


if __name__ == "__main__":
    for path, text in dependent_files():
        path.write_text(text, encoding="utf-8")
