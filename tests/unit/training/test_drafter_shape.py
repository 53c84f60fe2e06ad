"""The shape of a new drafter: the recipe's wishes, the target's widths for the rest."""

from dataclasses import replace
from typing import cast

import pytest

from blockdraft.decoding.interfaces import TargetSpec
from blockdraft.errors import ConfigError
from blockdraft.target.shape import DecoderShape
from blockdraft.target.text import TextCodec
from blockdraft.testing import ByteTextCodec
from blockdraft.testing.codec import BOS_ID, END_ID, MASK_ID, NUM_BYTES
from blockdraft.training.config import DrafterSection
from blockdraft.training.drafter_shape import choose_mask_token, shape_drafter

SPEC = TargetSpec(
    name="t",
    vocab_size=ByteTextCodec.vocab_size,
    hidden_size=32,
    num_layers=30,
    max_context_len=512,
    stop_ids=(END_ID,),
)
SHAPE = DecoderShape(
    hidden_size=32,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    intermediate_size=80,
    rms_norm_eps=1e-5,
    rope_theta=5e5,
    max_position_embeddings=512,
)


def test_widths_follow_the_target() -> None:
    made = shape_drafter(DrafterSection(), SPEC, SHAPE, 3)
    assert (made.hidden_size, made.intermediate_size, made.head_dim) == (32, 80, 8)
    assert (made.num_heads, made.num_kv_heads, made.vocab_size) == (4, 2, SPEC.vocab_size)
    assert (made.rms_norm_eps, made.rope.theta) == (1e-5, 5e5), "T04: no silent default"
    assert (made.num_layers, made.block_size, made.mask_token_id) == (5, 16, 3)
    assert made.taps == (1, 8, 14, 20, 27) and made.num_target_layers == 30


def test_wishes_come_first() -> None:
    wishes = DrafterSection(
        num_layers=2,
        block_size=8,
        taps=(0, 5),
        intermediate_size=48,
        layer_types=("sliding_attention", "full_attention"),
        sliding_window=16,
        draft_vocab_size=100,
    )
    made = shape_drafter(wishes, SPEC, SHAPE, 3)
    assert (made.block_size, made.taps, made.intermediate_size) == (8, (0, 5), 48)
    assert made.layer_types == ("sliding_attention", "full_attention")
    assert (made.sliding_window, made.draft_vocab_size) == (16, 100)


def test_a_target_without_a_feed_forward_width() -> None:
    made = shape_drafter(DrafterSection(), SPEC, replace(SHAPE, intermediate_size=None), 3)
    assert made.intermediate_size == 96


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (DrafterSection(layer_types=("full_attention",)), "names 1 layers, num_layers is 5"),
        (DrafterSection(taps=(29,)), "can't be tapped"),
        (DrafterSection(taps=(40,)), "taps"),
        (DrafterSection(num_taps=40), "40 taps from a target of 30 layers"),
        (DrafterSection(num_layers=1, layer_types=("sliding_attention",)), "sliding_window"),
    ],
)
def test_shapes_that_do_not_fit(section: DrafterSection, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        shape_drafter(section, SPEC, SHAPE, 3)


class TestMaskToken:
    """Each of these once made a drafter that accepts nothing (training notes, 5.1)."""

    codec = cast(TextCodec, ByteTextCodec())

    def test_an_id_stands_for_itself(self) -> None:
        assert choose_mask_token(7, SPEC, None, ()) == 7
        for bad in (-1, SPEC.vocab_size):
            with pytest.raises(ConfigError, match=f"mask_token {bad} is outside"):
                choose_mask_token(bad, SPEC, self.codec, ())

    def test_a_row_without_a_text_comes_first(self) -> None:
        padded = replace(SPEC, vocab_size=SPEC.vocab_size + 10)
        assert choose_mask_token(None, padded, self.codec, ()) == SPEC.vocab_size

    def test_else_a_special_token_that_no_answer_uses(self) -> None:
        assert choose_mask_token(None, SPEC, self.codec, ()) == MASK_ID
        assert choose_mask_token(None, SPEC, self.codec, (MASK_ID,)) == MASK_ID - 1
        used = [i for i in range(NUM_BYTES, SPEC.vocab_size) if i != END_ID]
        with pytest.raises(ConfigError, match="no special token"):
            choose_mask_token(None, SPEC, self.codec, used)

    def test_a_name_must_be_one_token(self) -> None:
        assert choose_mask_token("x", SPEC, self.codec, ()) == ord("x")
        for name in ("xy", "", "nothing like it"):
            with pytest.raises(ConfigError, match="is not one token"):
                choose_mask_token(name, SPEC, self.codec, ())

    def test_without_a_tokenizer_an_id_is_asked_for(self) -> None:
        for wish in (None, "<mask>"):
            with pytest.raises(ConfigError, match=r"give drafter\.mask_token as an id"):
                choose_mask_token(wish, SPEC, None, ())
        assert SPEC.vocab_size > BOS_ID
