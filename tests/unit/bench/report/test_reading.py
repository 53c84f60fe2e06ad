"""Documents of another schema, version or shape are refused in one line that says where."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from sample_bench import Document, make_document, parts

from blockdraft.bench.report.fields import Shape, document_shape
from blockdraft.bench.report.reading import parse_document, read_results
from blockdraft.errors import ConfigError


def first(document: Document, name: str) -> Document:
    return parts(document, name)[0]


def test_a_whole_document(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(make_document()))
    document = read_results(tmp_path)
    assert document == read_results(tmp_path / "results.json")
    assert document == parse_document(make_document())
    assert [lane.name for lane in document.lanes][1] == "prompt-lookup"
    assert [load.title for load in document.loads] == [f"{n} at once" for n in (1, 2, 4, 8)]
    figures = document.find("dflash fixed:4", document.loads[0])
    assert figures is not None and figures.tau == 2.05
    assert next(group.title for group in figures.groups["context_len"]) == "0 to 63"


BROKEN: list[tuple[Callable[[Document], object], str]] = [
    (lambda d: d.update(schema="other"), "is no result of `blockdraft bench`"),
    (lambda d: d.update(version=1), "has version 1 of the schema .* measure again"),
    (lambda d: d.update(version=3), "use the Blockdraft that wrote it"),
    (lambda d: d.update(complete=1), "complete is not true or false"),
    (lambda d: d.update(mode="remote"), "mode is not one of in-process, endpoint"),
    (lambda d: d.update(lanes={}), "lanes is not a list"),
    (lambda d: d.update(figures=[7]), r"figures\[0\] is not an object"),
    (lambda d: parts(d, "lanes")[1].update(name="plain"), "lanes with different names"),
    (lambda d: first(d, "figures").update(lane="x"), r"figures\[0\].lane is not one of the lanes"),
    (lambda d: first(d, "figures").update(tau="2"), r"figures\[0\].tau is not a finite number"),
    (lambda d: first(d, "figures").update(tau=float("nan")), "not a finite number"),
    (lambda d: first(d, "figures").update(tau=10**400), "not a finite number"),
    (lambda d: d.update(note="x"), "'note' is no field of a bench's results"),
    (lambda d: first(d, "figures").update(taus=2), r"'figures\[0\].taus' .*meant: tau"),
    (
        lambda d: first(first(d, "levels"), "records").update(first_ms=2),
        r"'levels\[0\].records\[0\].first_ms' is no field",
    ),
    (lambda d: cast(Document, d["conditions"]).update(url="http://h"), "'conditions.url' is no"),
    (lambda d: first(d, "figures").update(tau_interval=[2, 1]), "a lower and an upper end"),
    (lambda d: first(d, "figures").update(answers=-1), "a whole number of at least 0"),
    (lambda d: first(d, "figures").update(arrival={}), "given, or else rate"),
    (lambda d: first(d, "levels").update(step_time={"steps": "a"}), "step_time.steps is not"),
    (lambda d: d.update(stack=[{"engine": 7}]), r"stack\[0\].engine is not a text"),
    (lambda d: d.update(stack=[{"engine": "a", "verdict": "ready", "findings": [1]}]), "texts"),
]


@pytest.mark.parametrize(("spoil", "message"), BROKEN)
def test_other_shapes(spoil: Callable[[Document], object], message: str) -> None:
    document = make_document()
    spoil(document)
    with pytest.raises(ConfigError, match=message) as found:
        parse_document(document, "run.json")
    assert "run.json" in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("[" * 100_000, "is not JSON"),
        ("{}", "its schema is None"),
    ],
)
def test_other_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_results(path)


@pytest.mark.parametrize(
    ("page", "mode"), [("measuring.md", "in-process"), ("bench.md", "endpoint")]
)
def test_the_schema_is_documented(page: str, mode: str) -> None:
    """Every field that a reader accepts is in the page's example, and no other."""
    text = (Path(__file__).parents[4] / "docs" / page).read_text()
    (block,) = re.findall(r"^```json\n(\{\n  \"schema\".*?)^```$", text, re.M | re.S)
    example = cast(Document, json.loads(block))
    parse_document(example, page)
    assert missing_of(example, document_shape(mode), "") == []


def missing_of(value: object, shape: Shape, path: str) -> list[str]:
    """Fields that no object there has; nothing is said of what is null or empty."""
    objects = cast("list[Document]", value if isinstance(value, list) else [value])
    if not objects or objects == [None]:
        return []
    found: list[str] = []
    for name, inner in shape.items():
        having = [one[name] for one in objects if name in one]
        if not having:
            found.append(f"{path}{name}")
        elif inner is not None:
            found += missing_of(having[0], inner, f"{path}{name}.")
    return found


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read .*results.json .*bench --out DIR"):
        read_results(tmp_path)


def test_a_list_ends_at_its_first_unknown() -> None:
    document = make_document()
    first(document, "figures")["conditional"] = [0.5, None, 0.1]
    assert parse_document(document).figures[0].conditional == (0.5,)


def test_tuples_count_as_lists() -> None:
    """A document that was not written yet may hold them."""
    document = make_document()
    document["figures"] = tuple(cast("list[object]", document["figures"]))
    assert len(parse_document(document).figures) == 20
