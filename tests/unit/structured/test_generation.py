"""Whole requests through the reference decoder and the engine's own law: B17, B18, B20, B21."""

import json
import re
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
import xgrammar

from blockdraft.decoding.completion import Completion, collect
from blockdraft.decoding.interfaces import Draft, Drafter, DraftIds, DraftLogits
from blockdraft.decoding.loop import decode
from blockdraft.decoding.params import SamplingParams
from blockdraft.errors import RequestError
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.native import CompiledGrammar, Vocabulary
from blockdraft.structured.processor import GrammarProcessor
from blockdraft.structured.spec import GrammarSpec
from blockdraft.target.text import TextCodec
from blockdraft.testing import OracleDrafter, RandomDrafter, ScriptedTarget, hashed_logits
from blockdraft.testing.drafters import ListDrafter

Compile = Callable[[GrammarSpec], CompiledGrammar]

REGEX = "(ab?c|[x-z]{1,3}){2,4}"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "ok": {"type": "boolean"},
        "kind": {"enum": ["one", 2, None]},
    },
    "required": ["name", "ok"],
    "additionalProperties": False,
}
SPECS = {
    "regex": GrammarSpec(kind="regex", value=REGEX),
    "json_schema": GrammarSpec(kind="json_schema", value=json.dumps(SCHEMA)),
    "choice": GrammarSpec(kind="choice", value='["yes", "no", "maybe"]'),
    "grammar": GrammarSpec(kind="grammar", value='root ::= "(" root? ")" | [0-9]'),
    "json_object": GrammarSpec(kind="json_object"),
}
PROMPT = (3, 1, 4)


class StubbornState:
    """Proposes one and the same token, whatever was committed."""

    def __init__(self, token_id: int) -> None:
        self._token_id = token_id
        self.context_len = 0

    def extend(self, ids: Sequence[int], features: torch.Tensor | None) -> None:
        self.context_len += len(ids)

    def propose(self, anchor: int, width: int) -> Draft:
        return DraftIds((self._token_id,) * (width - 1))


class StubbornDrafter:
    taps: tuple[int, ...] = ()

    def __init__(self, token_id: int, block_size: int) -> None:
        self.block_size = block_size
        self._token_id = token_id

    def open(self) -> StubbornState:
        return StubbornState(self._token_id)


def params_of(
    spec: GrammarSpec, compile_grammar: Compile, vocabulary: Vocabulary, *, temperature: float
) -> SamplingParams:
    make = partial(GrammarProcessor, compile_grammar(spec), vocabulary, GrammarLimits())
    return SamplingParams(max_new_tokens=24, temperature=temperature, seed=7, processors=(make,))


def target_of(vocabulary: Vocabulary, seed: int = 0) -> ScriptedTarget:
    law = hashed_logits(vocabulary.vocab_size, seed=seed)
    return ScriptedTarget(law, vocabulary.vocab_size, stop_ids=vocabulary.stop_ids)


def drafters_of(target: ScriptedTarget, block_size: int, plain: Completion) -> list[Drafter]:
    """Useless, hostile and perfect ones."""
    vocab_size = target.spec.vocab_size
    right = [plain.token_ids[n : n + block_size] for n in range(1, len(plain.token_ids))]
    return [
        RandomDrafter(vocab_size, block_size),
        RandomDrafter(vocab_size, block_size, as_logits=False),
        OracleDrafter(target, block_size, as_logits=True),
        StubbornDrafter(target.spec.stop_ids[0], block_size),
        StubbornDrafter(vocab_size - 1, block_size),
        ListDrafter(right, block_size),
    ]


def check_output(
    spec: GrammarSpec, compile_grammar: Compile, codec: TextCodec, completion: Completion
) -> None:
    """The ids are what the grammar allows, and the text is valid where it was not cut."""
    matcher = xgrammar.GrammarMatcher(compile_grammar(spec).grammar)
    assert all(matcher.accept_token(token_id) for token_id in completion.token_ids)
    if completion.finish_reason == "length":
        return
    text = codec.decode(completion.token_ids)
    if spec.kind == "regex":
        assert re.fullmatch(REGEX, text)
    elif spec.kind == "choice":
        assert text in ("yes", "no", "maybe")
    elif spec.kind == "json_object":
        assert isinstance(json.loads(text), dict)
    elif spec.kind == "json_schema":
        value = json.loads(text)
        assert set(value) in ({"name", "ok"}, {"name", "ok", "kind"})
        assert isinstance(value["name"], str)
        assert len(value["name"]) <= 4
        assert isinstance(value["ok"], bool)
        assert value.get("kind") in ("one", 2, None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", SPECS)
def test_a_drafter_changes_nothing(
    name: str, temperature: float, compiled: Compile, codec: TextCodec, vocabulary: Vocabulary
) -> None:
    spec = SPECS[name]
    params = params_of(spec, compiled, vocabulary, temperature=temperature)
    finished: set[str] = set()
    for block_size in range(1, 17) if name == "choice" else (1, 2, 5, 16):
        target = target_of(vocabulary, seed=block_size)
        no_drafter = RandomDrafter(vocabulary.vocab_size, 1)
        plain = collect(PROMPT, decode(target, no_drafter, PROMPT, params))
        check_output(spec, compiled, codec, plain)
        finished.add(str(plain.finish_reason))
        for drafter in drafters_of(target, block_size, plain):
            drafted = collect(PROMPT, decode(target, drafter, PROMPT, params))
            assert drafted.token_ids == plain.token_ids
            assert drafted.finish_reason == plain.finish_reason
    if name not in ("json_object", "json_schema"):  # random JSON may write blanks until the limit
        assert "stop" in finished


def test_the_grammar_on_draft_logits_keeps_acceptance(
    compiled: Compile, vocabulary: Vocabulary
) -> None:
    """A drafter that is the target itself is always right, although the grammar forbids most of
    what both want to say."""
    target = target_of(vocabulary)
    spec = GrammarSpec(kind="regex", value="[a-z ]{60}")
    params = params_of(spec, compiled, vocabulary, temperature=0.0)
    no_drafter = RandomDrafter(vocabulary.vocab_size, 1)
    plain = collect(PROMPT, decode(target, no_drafter, PROMPT, params))

    class EqualState(StubbornState):
        """The target's own rows along its constrained text."""

        def propose(self, anchor: int, width: int) -> Draft:
            done = self.context_len + 1 - len(PROMPT)
            text = (*PROMPT, *plain.token_ids)
            rows = [
                target.logits_of(text[: len(PROMPT) + done + slot])
                for slot in range(min(width - 1, len(plain.token_ids) - done))
            ]
            if not rows:
                return DraftIds(())
            return DraftLogits(torch.stack(rows))

    class EqualDrafter(StubbornDrafter):
        def open(self) -> StubbornState:
            return EqualState(0)

    drafted = collect(PROMPT, decode(target, EqualDrafter(0, 8), PROMPT, params))
    assert drafted.token_ids == plain.token_ids
    stats = drafted.stats
    assert stats.steps <= -(-len(plain.token_ids) // 8) + 1


def test_min_tokens_behind_the_end_of_the_grammar_is_a_clear_error(
    compiled: Compile, vocabulary: Vocabulary
) -> None:
    make = partial(GrammarProcessor, compiled(SPECS["choice"]), vocabulary, GrammarLimits())
    params = SamplingParams(max_new_tokens=24, min_tokens=20, processors=(make,))
    drafter = RandomDrafter(vocabulary.vocab_size, 4)
    with pytest.raises(RequestError, match="min_tokens"):
        collect(PROMPT, decode(target_of(vocabulary), drafter, PROMPT, params))


def test_ignored_stop_ids_repeat_until_the_limit(
    compiled: Compile, codec: TextCodec, vocabulary: Vocabulary
) -> None:
    make = partial(GrammarProcessor, compiled(SPECS["choice"]), vocabulary, GrammarLimits())
    params = SamplingParams(max_new_tokens=12, ignore_eos=True, processors=(make,))
    drafter = RandomDrafter(vocabulary.vocab_size, 4)
    answer = collect(PROMPT, decode(target_of(vocabulary), drafter, PROMPT, params))
    assert len(answer.token_ids) == 12
    assert codec.decode(answer.token_ids) in ("yes", "no", "maybe")
