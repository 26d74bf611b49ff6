"""stampede.experiment: any garbled file is an experiment or refused by place."""

from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.quick.test_experiment import GARBLED, GOOD, LOADS, check, places

KEYS = st.one_of(st.text(max_size=8), st.integers(), st.none(), st.booleans(), st.dates(), st.binary(max_size=4))
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text(max_size=12), st.dates(),
        st.datetimes(), st.binary(max_size=8), st.sampled_from(GARBLED).map(lambda text: f"@@{GARBLED.index(text)}@@"),
        st.sets(st.text(max_size=3), max_size=2),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Change a good file in one to three places: another value, none, one more, another key, an alias."""
    document = yaml.safe_load(draw(st.sampled_from([GOOD, LOADS])))
    for _ in range(draw(st.integers(1, 3))):
        where = places(document)  # taken before an alias may close a circle
        if not where:
            break
        holder, key = draw(st.sampled_from(where))
        match draw(st.sampled_from(["replace", "remove", "add", "rename", "alias"])):
            case "replace":
                holder[key] = draw(VALUES)
            case "remove":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(KEYS)] = draw(VALUES)
            case "add":
                holder.insert(key, draw(VALUES))
            case "rename" if isinstance(holder, dict):
                holder[draw(KEYS)] = holder.pop(key)
            case "alias":
                other, name = draw(st.sampled_from(where))
                holder[key] = other if draw(st.booleans()) else other[name]
                break
    text = yaml.dump(document, Dumper=yaml.SafeDumper, allow_unicode=draw(st.booleans()), sort_keys=False)
    for number, garbled in enumerate(GARBLED):
        text = text.replace(f"'@@{number}@@'", garbled)
    kept = text.splitlines(keepends=True)
    if draw(st.integers(0, 9)) == 0:
        line = draw(st.integers(0, len(kept) - 1))
        kept.insert(line, kept[line])
    return "".join(kept)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=mutated())
def test_a_changed_file_is_an_experiment_or_wrong_use(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    check(path)
