"""results.json as Markdown tables, with the thresholds that the project set itself beside them."""

from collections.abc import Mapping, Sequence
from typing import cast

Record = Mapping[str, object]


def render(results: Record) -> str:
    """All tables for which there are results."""
    parts = [_conditions(_record(results["conditions"]))]
    if "steps" in results:
        parts.append(_steps(_record(results["steps"])))
    if "concurrency" in results:
        parts.append(_concurrency(_records(results["concurrency"])))
    if "contexts" in results:
        parts.append(_contexts(_records(results["contexts"])))
    if "compare" in results:
        parts.append(_compare(_record(results["compare"])))
    return "\n".join(parts)


def _conditions(facts: Record) -> str:
    return "".join(f"- {name}: {value}\n" for name, value in facts.items())


def _steps(steps: Record) -> str:
    stream, plain = _number(steps, "stream_ms"), _number(steps, "plain_ms")
    drafted, random16 = _number(steps, "drafted_ms"), _number(steps, "random16_ms")
    rows = [
        ("reading the weights once", f"{stream:.1f}", ""),
        ("native plain step", f"{plain:.1f}", f"{plain / stream:.2f}x of reading the weights"),
        (
            "DFlash step, built-in drafter, block 8",
            f"{drafted:.1f}",
            f"{drafted / plain:.2f}x plain",
        ),
        (
            "DFlash step, random drafter, block 16",
            f"{random16:.1f}",
            f"{random16 / plain:.2f}x plain",
        ),
    ]
    gb = _number(steps, "weight_bytes") / 1e9
    heading = f"{gb:.3f} GB of weights, read at {gb / stream * 1e3:.0f} GB/s\n\n"
    return heading + _table(("step of one request", "ms", "ratio"), rows)


def _concurrency(rows: Sequence[Record]) -> str:
    alone = _number(rows[0], "off_tokens_per_second")
    return _table(
        (
            "concurrency",
            "off, tok/s",
            "auto, tok/s",
            "auto / off",
            "off against 1",
            "slowest/fastest",
        ),
        [
            (
                str(row["concurrency"]),
                f"{_number(row, 'off_tokens_per_second'):.0f}",
                f"{_number(row, 'auto_tokens_per_second'):.0f}",
                f"{_number(row, 'ratio'):.2f}x",
                f"{_number(row, 'off_tokens_per_second') / alone:.1f}x",
                f"{_number(row, 'off_slowest_share'):.2f}",
            )
            for row in rows
        ],
    )


def _contexts(rows: Sequence[Record]) -> str:
    return _table(
        ("context, tokens", "keys and values, MB", "plain pass, ms", "pass of 8 rows, ms"),
        [
            (
                str(row["context_len"]),
                f"{_number(row, 'kv_bytes') / 1e6:.1f}",
                f"{_number(row, 'plain_ms'):.1f}",
                f"{_number(row, 'verify8_ms'):.1f}",
            )
            for row in rows
        ],
    )


def _compare(compared: Record) -> str:
    parts = [
        f"First {compared['prompts']} prompts of each set, {compared['max_new_tokens']} new tokens,"
        f" {compared['repeats']} repeats, medians.\n"
    ]
    for name, result in _record(compared["sets"]).items():
        record = _record(result)
        rows = _records(record["rows"])
        base = _number(rows[0], "tokens_per_second")
        table = [
            (
                str(row["system"]),
                f"{_number(row, 'tokens_per_second'):.1f}",
                f"{_number(row, 'tokens_per_second') / base:.2f}x",
                _maybe(row, "ms_per_step", 1.0, ".1f"),
                _maybe(row, "tau", 1.0, ".2f"),
                str(row["same"]),
                _maybe(row, "peak_memory_bytes", 1e-6, ".0f"),
                f"{_number(row, 'spread'):.0%}",
            )
            for row in rows
        ]
        heading = ("system", "tok/s", "of native plain", "ms/step", "tau", "same", "MB", "spread")
        parts.append(f"**{name}**\n\n{_table(heading, table)}")
        parts += [f"- {peer}: {reason}\n" for peer, reason in _record(record["failed"]).items()]
    for kind in ("versions", "notes"):
        parts += [
            f"- {peer}: {value}\n" for peer, value in _record(compared[kind]).items() if value
        ]
    return "\n".join(parts)


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---", *("---:" for _ in heading[1:])], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _maybe(row: Record, name: str, factor: float, form: str) -> str:
    value = row[name]
    return "-" if value is None else format(_number(row, name) * factor, form)


def _number(record: Record, name: str) -> float:
    value = record[name]
    assert isinstance(value, int | float)
    return float(value)


def _record(value: object) -> Record:
    assert isinstance(value, dict)
    return cast(Record, value)


def _records(value: object) -> list[Record]:
    assert isinstance(value, list)
    return cast(list[Record], value)
