"""A recipe is read whole or refused with the key: nothing is ignored in silence (T09)."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import blockdraft.training
from blockdraft.errors import ConfigError
from blockdraft.training.config import RunConfig, parse_recipe
from blockdraft.training.run.state import check_settings, flatten

DATA = '[data]\nanswers = ["a"]\n'


def test_everything_but_the_answers_has_a_default() -> None:
    config = parse_recipe(DATA, "r.toml")
    assert config.data.answers == ("a",)
    assert (config.run.epochs, config.run.clip, config.drafter.num_layers) == (6, 1.0, None)
    assert config.loss.name == "ce" and config.drafter.block_size is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "r.toml: data is missing"),
        ("[data]", "r.toml.data: answers is missing"),
        ("[data]\nanswers = []", "data.answers names no folder"),
        ("data = 3", "r.toml.data is 3, expected a table"),
        (f"{DATA}[optimiser]", "r.toml: unknown key 'optimiser'; known are data, target"),
        (f"{DATA}[run]\nepoch = 3", "r.toml.run: unknown key 'epoch'; known are epochs, steps"),
        (f"{DATA}[run]\nepochs = '3'", "r.toml.run.epochs is '3', expected an integer"),
        (f"{DATA}[run]\nepochs = 3.0", "r.toml.run.epochs is 3.0, expected an integer"),
        (f"{DATA}[run]\nepochs = true", "r.toml.run.epochs is True, expected an integer"),
        (f"{DATA}[run]\nclip = true", "r.toml.run.clip is True, expected a number"),
        (f"{DATA}[run]\nclip = nan", "run.clip is nan"),
        (f"{DATA}[run]\nclip = 0", "run.clip is 0.0"),
        (f"{DATA}[run]\nema = 1.0", "run.ema is 1.0"),
        (f"{DATA}[run]\nsteps = 0", "at least 1 epoch, or 1 step"),
        (f"{DATA}[run]\nsave_every = 0", "save_every and keep_last"),
        (f"{DATA}[run]\nrecompute = 1", "r.toml.run.recompute is 1, expected true or false"),
        (f"{DATA}[run]\nprecision = 'fp8'", "precision is 'fp8'; give one of bfloat16, float32"),
        (
            f"{DATA}[drafter]\ntaps = [1, 'x']",
            r"r.toml.drafter.taps\[1\] is 'x', expected an integer",
        ),
        (
            f"{DATA}[drafter]\ntaps = 3",
            r"r.toml.drafter.taps is 3, expected a list of integers like \[1, 2\]",
        ),
        (f"{DATA}[drafter]\nblock_size = 1", "drafter.block_size is 1; give at least 2"),
        (f"{DATA}[drafter]\nmask_token = 1.5", "mask_token is 1.5, expected a text or an integer"),
        (f"{DATA}[loss]\nname = 'mse'", "name is 'mse'; give one of ce, kl, tv, lk"),
        (f"{DATA}[anchors]\nstride = 0", "anchors.stride is 0"),
        (f"{DATA}[packing]\nrow_tokens = 0", "row_tokens is 0"),
        (f"{DATA}[eval]\ndecode_every = 5", "eval.decode_every needs eval.prompts"),
        (f"{DATA}[eval]\nsimulate_every = -1", "eval intervals"),
        (f"{DATA}[eval]\ndecode_limit = 0", "eval.decode_limit"),
        (f"{DATA}[data.samples]\non_long = 'x'", "on_long is 'x'; give one of skip, cut, refuse"),
        (f"{DATA}features = ['x', 'y']", "data.features names 2 caches for 1 folders"),
        (f"{DATA}heldout_share = 1.0", "data.heldout_share is 1.0"),
        (f"{DATA}heldout_share = nan", "data.heldout_share is nan"),
        (f"{DATA}limit = 0", "data.limit is 0"),
        (f"{DATA}answers = ['b']", "r.toml is no TOML"),
        (f"{DATA}[schedule]\nwarmup_ratio = 2", "schedule.warmup_ratio is 2.0, expected 0 to 1"),
        (f"{DATA}[schedule]\nwarmup_steps = -1", "schedule.warmup_steps is -1"),
        (
            f"{DATA}[drafter]\ntaps = [0, 1]\nnum_taps = 5",
            "num_taps is 5, but drafter.taps names 2",
        ),
        (f"{DATA}[drafter]\ninit_layers = [1]", "drafter.init is scratch, which copies none"),
        (f"{DATA}[drafter]\nsliding_window = 4", "sliding_window is 4, but no layer slides"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_recipe(text, "r.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("run.seed=7", "run.seed", 7),
        ("run.clip=2", "run.clip", 2.0),
        ("run.precision=float32", "run.precision", "float32"),
        ('run.precision="float32"', "run.precision", "float32"),
        ("optimizer.lr=2e-3", "optimizer.lr", 2e-3),
        ("drafter.taps=[1, 2]", "drafter.taps", (1, 2)),
        ("drafter.mask_token=<mask>", "drafter.mask_token", "<mask>"),
        ("drafter.mask_token=16", "drafter.mask_token", 16),
        ("data.samples.max_tokens=99", "data.samples.max_tokens", 99),
        (' data . answers =["x"]', "data.answers", ("x",)),
        ("run.wandb_project=a=b", "run.wandb_project", "a=b"),
    ],
)
def test_overrides(override: str, path: str, value: object) -> None:
    found: object = parse_recipe(DATA, "r.toml", [override])
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run.seed", "is no override; give section.key=value"),
        ("seed=3", "is no override"),
        ("run.=3", "is no override"),
        ("run.sead=3", "r.toml.run: unknown key 'sead'"),
        ("run.seed=x", "r.toml.run.seed is 'x', expected an integer"),
        ("run.seed=", "r.toml.run.seed is '', expected an integer"),
        (
            "data.answers=DIR",
            """r.toml.data.answers is 'DIR', expected a list of texts like ["DIR"]: """
            """--set 'data.answers=["DIR"]'""",
        ),
        ("drafter.taps=1", "expected a list of integers like [1, 2]"),
        ("drafter.layer_types=full_attention", 'like ["full_attention"]'),
        ("data.samples.categories=math", """--set 'data.samples.categories=["math"]'"""),
        ("data.answers.x=3", "answers is no table of the recipe"),
    ],
)
def test_overrides_that_can_not_be_read(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        parse_recipe(DATA, "r.toml", [override])


def test_later_overrides_win() -> None:
    assert parse_recipe(DATA, "r", ["run.seed=1", "run.seed=2"]).run.seed == 2


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_recipe_or_a_config_error(text: str, override: str) -> None:
    for source, overrides in ((text, []), (DATA, [override]), (DATA, [f"run.seed={override}"])):
        try:
            parse_recipe(source, "r.toml", overrides)
        except ConfigError as error:
            assert str(error)


def test_settings_survive_json_and_changes_are_named() -> None:
    config = parse_recipe(f"{DATA}[drafter]\ntaps = [1, 2]", "r.toml")
    saved = json.loads(json.dumps(config.as_table()))
    check_settings(saved, config.as_table())
    other = parse_recipe(DATA, "r.toml", ["drafter.taps=[1, 3]", "run.seed=4"]).as_table()
    with pytest.raises(ConfigError, match=r"drafter\.taps .*run\.seed \(was 0, now 4\)"):
        check_settings(saved, other)
    check_settings(saved, other, frozenset({"drafter", "run.seed"}))


def leaves(section: type, prefix: str = "") -> Iterator[str]:
    """The dotted name of every setting."""
    hints = get_type_hints(section)
    for one in dataclasses.fields(section):
        kind = hints[one.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            yield from leaves(kind, f"{prefix}{one.name}.")
        else:
            yield f"{prefix}{one.name}"


def test_every_setting_is_read_somewhere() -> None:
    """T09: a key that no code reads would be ignored in silence. Text search: `.name` outside of
    the checks of the section itself."""
    package = Path(*blockdraft.training.__path__)
    sources = [path.read_text() for path in package.rglob("*.py") if path.name != "config.py"]
    sources += [path.read_text() for path in package.parent.joinpath("cli").glob("train*.py")]
    read = {name for text in sources for name in re.findall(r"\.(\w+)", text)}
    names = list(leaves(RunConfig))
    assert len(names) > 50 and flatten(parse_recipe(DATA, "r").as_table()).keys() == set(names)
    # ScheduleSection copies its fields one by one, and the schedule reads the copies.
    assert [name for name in names if name.split(".")[-1] not in read] == []
