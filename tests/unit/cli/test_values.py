"""The text of command-line values to Python values."""

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from blockdraft.cli import values


def test_id_list() -> None:
    assert values.id_list("12,7, 99") == (12, 7, 99)
    assert values.id_list("-1") == (-1,)  # a wrong id is the target's to refuse, by name


def test_bias() -> None:
    assert values.bias("12=-5") == (12, -5.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("enable_thinking=false", ("enable_thinking", False)),
        ("budget=3", ("budget", 3)),
        ("name=Ann", ("name", "Ann")),
        ("name=", ("name", "")),
        ('name="3"', ("name", "3")),
        ("equation=a=b", ("equation", "a=b")),
        ("depth=null", ("depth", None)),
        pytest.param("deep=" + "[" * 50_000, ("deep", "[" * 50_000), id="nested"),
    ],
)
def test_template_arg_is_json_where_it_can_be(text: str, expected: tuple[str, object]) -> None:
    assert values.template_arg(text) == expected


def test_batch_invariant() -> None:
    assert values.batch_invariant("auto") == "auto"
    assert values.batch_invariant("off") == "off"
    assert values.batch_invariant("16") == 16


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("500MB", 500_000_000),
        ("2GB", 2_000_000_000),
        ("1GiB", 1 << 30),
        ("1.5 gib", 3 << 29),
        ("64k", 64_000),
        ("4096", 4096),
        ("7B", 7),
    ],
)
def test_byte_count(text: str, num_bytes: int) -> None:
    assert values.byte_count(text) == num_bytes


def test_widths() -> None:
    assert values.fixed_width("8") == "fixed:8"
    assert values.width_list("off,2, 8,auto") == ("off", 2, 8, "auto")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (values.id_list, ""),
        (values.id_list, "1,,2"),
        (values.id_list, "1.5"),
        (values.bias, "12"),
        (values.bias, "a=1"),
        (values.template_arg, "enable_thinking"),
        (values.template_arg, "=3"),
        (values.batch_invariant, "on"),
        (values.fixed_width, "0"),
        (values.width_list, "2,wide"),
        (values.width_list, ""),
        (values.byte_count, "2XB"),
        (values.byte_count, "-1GB"),
        (values.byte_count, "0"),
        (values.byte_count, "1iB"),
        (values.byte_count, ""),
        (values.byte_count, "GB"),
        (values.thread_count, "9999"),
        (values.thread_count, "0"),
        (values.count, "0"),
        (values.count, "-3"),
        (values.count, "x"),
    ],
)
def test_malformed_values_are_quoted_in_the_error(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=r"^'"):
        parse(text)
