"""Anchors and the order of rows: random, fresh every epoch, the same wherever they are drawn."""

from collections import Counter
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from packed import sample

from blockdraft.errors import ConfigError
from blockdraft.training.batches.anchors import (
    AnchorConfig,
    draw_anchors,
    num_anchors,
    valid_anchors,
)
from blockdraft.training.batches.batch import Sample
from blockdraft.training.batches.layout import NO_LABEL, lay_out
from blockdraft.training.batches.packing import PackingConfig, make_batch, pack_epoch
from blockdraft.training.batches.row_stream import Place, RowStream, count_rows

ANCHORS = AnchorConfig(per_sample=6, stride=2)
PACKING = PackingConfig(row_tokens=60, row_anchors=14, rows_per_step=2)


def samples() -> list[Sample]:
    return [sample(row, 2 + row % 5, 2 + (7 * row) % 23) for row in range(40)]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(2, 30), st.integers(1, 40), st.integers(1, 5))
def test_anchors_are_answer_tokens_with_a_successor(
    prompt: int, answer: int, most: int, stride: int
) -> None:
    one, config = sample(0, prompt, answer), AnchorConfig(per_sample=most, stride=stride)
    drawn = draw_anchors(one, config, seed=1, epoch=2)
    assert list(drawn) == sorted(set(drawn))
    assert len(drawn) == num_anchors(one, config)
    assert set(drawn) <= set(valid_anchors(one)) == set(range(prompt, prompt + answer - 1))


def test_every_epoch_draws_anew_and_every_anchor_is_as_likely() -> None:
    one, config = sample(3, 4, 13), AnchorConfig(per_sample=3)
    drawn = [draw_anchors(one, config, seed=0, epoch=epoch) for epoch in range(2000)]
    assert len(set(drawn)) > 100
    counts = Counter(position for anchors in drawn for position in anchors)
    # 500 expected each; 5 standard deviations are about 97.
    assert set(counts) == set(valid_anchors(one))
    assert all(abs(count - 500) < 100 for count in counts.values())


def test_anchors_do_not_depend_on_the_other_samples() -> None:
    # Rank count, order and limits change neighbors, not draws.
    config = AnchorConfig(per_sample=4)
    alone = draw_anchors(sample(7, 3, 20), config, seed=5, epoch=1)
    batch_samples = [sample(7, 3, 20), sample(8, 3, 20)]
    rows = pack_epoch(
        batch_samples, PackingConfig(row_tokens=99, row_anchors=99), config, seed=5, epoch=1
    )
    batch = make_batch(rows[0], batch_samples, config, 5, seed=5)
    document = [s.row for s in batch.samples].index(7)
    chosen = batch.anchors[batch.document_of == document] - batch.starts[document]
    assert tuple(cast(list[int], chosen.tolist())) == alone


def test_an_epoch_has_every_sample_once_and_keeps_the_limits() -> None:
    everything = samples()
    rows = pack_epoch(everything, PACKING, ANCHORS, seed=1, epoch=0)
    assert sorted(i for row in rows for i in row.members) == list(range(40))
    for row in rows:
        assert sum(len(everything[i].ids) for i in row.members) <= PACKING.row_tokens
        assert sum(num_anchors(everything[i], ANCHORS) for i in row.members) <= 14
    again = pack_epoch(everything, PACKING, ANCHORS, seed=1, epoch=0)
    assert rows == again
    assert rows != pack_epoch(everything, PACKING, ANCHORS, seed=1, epoch=1)
    assert rows != pack_epoch(everything, PACKING, ANCHORS, seed=2, epoch=0)


def test_a_sample_that_fits_no_row_is_refused() -> None:
    small = PackingConfig(row_tokens=10, row_anchors=99)
    with pytest.raises(ConfigError, match=r"answer 5 has 13 tokens .* row_tokens 10"):
        pack_epoch([sample(5, 3, 10)], small, ANCHORS, seed=0, epoch=0)
    with pytest.raises(ConfigError, match="row_anchors 2"):
        few = PackingConfig(row_tokens=99, row_anchors=2)
        pack_epoch([sample(5, 3, 10)], few, ANCHORS, seed=0, epoch=0)


def test_nothing_to_learn_from_is_refused() -> None:
    short = Sample(row=0, ids=(5, 6), answer_start=1)
    with pytest.raises(ConfigError, match="nothing to learn"):
        RowStream([short], PACKING, ANCHORS, seed=0)


@pytest.mark.parametrize("done", [0, 1, 5, 17])
def test_a_stream_goes_on_from_any_place(done: int) -> None:
    straight = RowStream(samples(), PACKING, ANCHORS, seed=3)
    rows = straight.take(done) + straight.take(12)
    first = RowStream(samples(), PACKING, ANCHORS, seed=3)
    first.take(done)
    resumed = RowStream(samples(), PACKING, ANCHORS, seed=3, place=first.place)
    assert resumed.take(12) == rows[done:]
    assert resumed.place == straight.place


def test_rows_of_epochs_are_counted_as_they_are_streamed() -> None:
    total = count_rows(samples(), PACKING, ANCHORS, seed=3, num_epochs=3)
    stream = RowStream(samples(), PACKING, ANCHORS, seed=3)
    rows = stream.take(total)
    assert {row.epoch for row in rows} == {0, 1, 2}
    assert stream.take(1)[0].epoch == 3
    assert RowStream(samples(), PACKING, ANCHORS, seed=3).place == Place(0, 0)


def test_labels_are_the_same_position_and_end_with_the_document() -> None:
    # SpecForge 455: a shift by one gives a good loss and no acceptance.
    batch = make_batch(
        pack_epoch(samples(), PACKING, ANCHORS, seed=1, epoch=0)[0], samples(), ANCHORS, 6, seed=1
    )
    layout = lay_out(batch)
    ids = batch.ids
    for block, anchor in enumerate(cast(list[int], batch.anchors.tolist())):
        document = int(batch.document_of[block])
        end = batch.starts[document + 1]
        assert int(layout.anchor_ids[block]) == int(ids[anchor])
        assert int(layout.anchor_positions[block]) == anchor - batch.starts[document]
        for slot in range(1, 6):
            label = int(layout.labels.ids[block, slot - 1])
            inside = anchor + slot < end
            assert label == (int(ids[anchor + slot]) if inside else NO_LABEL)
            if inside:
                assert int(layout.labels.rows[block, slot - 1]) == anchor + slot - 1
    for span, one in zip(layout.spans, batch.samples, strict=True):
        assert span.end_token - span.first_token == len(one.ids)
        assert bool((layout.anchor_documents[span.first_block : span.end_block].diff() == 0).all())
    first = layout.token_positions[: len(batch.samples[0].ids)]
    assert torch.equal(first, torch.arange(len(first)))
