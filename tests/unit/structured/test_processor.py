"""The oracle: a fresh matcher that is fed the whole prefix."""

from collections.abc import Callable

import pytest
import torch
import xgrammar
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from blockdraft.decoding.rows import RowProcessor
from blockdraft.errors import RequestError
from blockdraft.structured.limits import GrammarLimits
from blockdraft.structured.native import CompiledGrammar, Vocabulary, unpack
from blockdraft.structured.processor import GrammarProcessor
from blockdraft.structured.spec import GrammarSpec
from blockdraft.target.text import TextCodec

Compile = Callable[[GrammarSpec], CompiledGrammar]
Make = Callable[[GrammarSpec], GrammarProcessor]

SPECS = (
    GrammarSpec(kind="json_object"),
    GrammarSpec(kind="regex", value="(ab?c|[x-z]{1,3}){1,4}"),
    GrammarSpec(kind="choice", value='["yes", "no", "maybe", "caf\\u00e9"]'),
    GrammarSpec(kind="grammar", value='root ::= "(" root? ")" | [0-9]+'),
)


def oracle(
    compiled: CompiledGrammar, vocabulary: Vocabulary, ids: list[int]
) -> tuple[frozenset[int], bool]:
    """What may follow `ids`, and whether they are legal themselves."""
    stops = frozenset(vocabulary.stop_ids)
    matcher = xgrammar.GrammarMatcher(compiled.grammar)
    for token_id in ids:
        if token_id in vocabulary.unusable or matcher.is_terminated():
            return stops, matcher.is_terminated()
        if not matcher.accept_token(token_id):
            return stops, False
    if matcher.is_terminated():
        return stops, True
    words = xgrammar.allocate_token_bitmask(1, vocabulary.vocab_size)
    matcher.fill_next_token_bitmask(words)
    return allowed_ids(unpack(words[0], vocabulary.vocab_size)), True


def allowed_ids(mask: Tensor) -> frozenset[int]:
    return frozenset(int(token_id) for token_id in mask.nonzero().view(-1))


def allowed_by(
    processor: RowProcessor, vocabulary: Vocabulary, prefix: list[int]
) -> frozenset[int]:
    logits = torch.arange(vocabulary.vocab_size, dtype=torch.float64)
    row = processor.mask(logits, prefix)
    kept = row.isfinite()
    assert torch.equal(row[kept], logits[kept])
    assert bool((row[~kept] == -torch.inf).all())
    return allowed_ids(kept)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_mask_is_that_of_a_fresh_matcher(
    data: st.DataObject, compiled: Compile, vocabulary: Vocabulary
) -> None:
    """Any order of drafts (legal or not), commits and rollbacks; report B20."""
    spec = data.draw(st.sampled_from(SPECS))
    grammar = compiled(spec)
    processor = GrammarProcessor(grammar, vocabulary, GrammarLimits())
    committed: list[int] = []

    def draw_ids(max_len: int, *, legal: bool) -> list[int]:
        ids: list[int] = []
        for _ in range(data.draw(st.integers(0, max_len))):
            allowed = sorted(oracle(grammar, vocabulary, committed + ids)[0])
            any_id = st.integers(0, vocabulary.vocab_size - 1)
            is_legal = legal or data.draw(st.integers(0, 3)) > 0
            ids.append(data.draw(st.sampled_from(allowed) if is_legal else any_id))
        return ids

    for _ in range(data.draw(st.integers(1, 6))):
        draft = draw_ids(6, legal=False)
        for length in data.draw(st.permutations(range(len(draft) + 1))):
            prefix = draft[:length]
            expected, _ = oracle(grammar, vocabulary, committed + prefix)
            assert allowed_by(processor, vocabulary, prefix) == expected
        if data.draw(st.booleans()):
            ids = draw_ids(4, legal=True)
            processor.advance(ids)
            committed += ids
        elif committed:
            count = data.draw(st.integers(0, len(committed)))
            processor.rollback(count)
            committed = committed[: len(committed) - count]


def test_it_is_a_constraint(make: Make) -> None:
    processor = make(SPECS[0])
    assert isinstance(processor, RowProcessor)
    assert not processor.keeps_argmax


def test_only_stop_ids_are_left_after_the_grammar(
    make: Make, codec: TextCodec, vocabulary: Vocabulary, stop_ids: tuple[int, ...]
) -> None:
    """Also behind a stop id, where a request ignores them."""
    processor = make(SPECS[2])
    processor.advance(codec.encode("maybe"))
    assert allowed_by(processor, vocabulary, []) == set(stop_ids)
    processor.advance([stop_ids[1]])
    assert allowed_by(processor, vocabulary, []) == set(stop_ids)
    assert allowed_by(processor, vocabulary, [stop_ids[0], 5, stop_ids[1]]) == set(stop_ids)
    processor.rollback(1)
    assert allowed_by(processor, vocabulary, []) == set(stop_ids)


def test_a_stop_id_is_allowed_beside_text_where_the_grammar_may_end(
    make: Make, codec: TextCodec, vocabulary: Vocabulary, stop_ids: tuple[int, ...]
) -> None:
    processor = make(GrammarSpec(kind="regex", value="a{1,9}"))
    assert not allowed_by(processor, vocabulary, []) & set(stop_ids)
    allowed = allowed_by(processor, vocabulary, codec.encode("a"))
    assert set(stop_ids) < allowed


def test_special_and_padding_rows_are_never_allowed(
    make: Make, codec: TextCodec, vocabulary: Vocabulary, stop_ids: tuple[int, ...]
) -> None:
    """A JSON string may hold any text, so also that of a special token, but not the token."""
    processor = make(SPECS[0])
    allowed = allowed_by(processor, vocabulary, codec.encode('{"a": "'))
    (tool_call,) = codec.encode("<tool_call>")
    assert tool_call in allowed  # an added token that is plain text
    assert not allowed & set(stop_ids)
    assert not any(token_id >= codec.vocab_size for token_id in allowed)
    spelled = [part for letter in "<|im_end|>" for part in codec.encode(letter)]
    assert allowed_by(processor, vocabulary, [*codec.encode('{"a": "'), *spelled])


@pytest.mark.parametrize("bad", [-1, 10**9, "padding", "special", "letter"])
def test_an_illegal_draft_neither_raises_nor_logs(
    bad: int | str,
    make: Make,
    codec: TextCodec,
    vocabulary: Vocabulary,
    stop_ids: tuple[int, ...],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """B18: the same wrong token drafted again and again filled the log."""
    named = {
        "padding": codec.vocab_size + 3,
        "special": stop_ids[0],
        "letter": codec.encode("Q")[0],
    }
    wrong = bad if isinstance(bad, int) else named[bad]
    processor = make(GrammarSpec(kind="regex", value="[abc]{4}"))
    (a,) = codec.encode("a")
    before = allowed_by(processor, vocabulary, [a])
    for _ in range(5):
        assert allowed_by(processor, vocabulary, [a, wrong, a, a]) == set(stop_ids)
        assert allowed_by(processor, vocabulary, [wrong] * 16) == set(stop_ids)
    assert allowed_by(processor, vocabulary, [a]) == before
    captured = capfd.readouterr()
    assert captured.err == captured.out == ""


def test_rows_of_another_vocabulary_are_refused(make: Make, vocabulary: Vocabulary) -> None:
    processor = make(SPECS[1])
    with pytest.raises(RequestError, match="vocab_size"):
        processor.mask(torch.zeros(vocabulary.vocab_size - 1), [])


@pytest.mark.slow
def test_a_grammar_that_is_slow_to_follow_fails_its_request(
    compiled: Compile, codec: TextCodec, vocabulary: Vocabulary
) -> None:
    """What shows only later in the output, each token dearer than the one before, stops there."""
    spec = GrammarSpec(kind="regex", value="((a{1,40}){1,40}){1,40}b")
    limits = GrammarLimits(step_seconds=0.02)
    processor = GrammarProcessor(compiled(spec), vocabulary, limits)
    (a,) = codec.encode("a")
    with pytest.raises(RequestError, match="ambiguous"):
        for _ in range(200):
            processor.mask(torch.zeros(vocabulary.vocab_size), [])
            processor.advance([a])
