"""`plain_text`: what plain `transformers` generation says, the oracle for every drafted text.

It uses nothing of Blockdraft: neither its caches nor its loops.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import PreTrainedModel

from blockdraft.target.quiet import quiet


@dataclass(frozen=True, slots=True)
class PlainText:
    """A prompt, the greedy text that follows, and how sure each token of it was.

    `margins[i]` is the gap between the two largest logits where token i was chosen.
    """

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    margins: tuple[float, ...]


def plain_text(model: PreTrainedModel, prompt: Sequence[int], max_new_tokens: int) -> PlainText:
    """The greedy text of `model.generate`, with the model's own cache, one token a pass."""
    generate = cast(Any, model).generate
    ids = torch.tensor([list(prompt)], device=model.device)
    with quiet(), torch.no_grad():
        output = generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    new = cast("list[int]", output.sequences[0, len(prompt) :].tolist())
    top = torch.cat(output.logits).double().topk(2, -1).values
    margins = cast("list[float]", (top[:, 0] - top[:, 1]).tolist())
    return PlainText(tuple(prompt), tuple(new), tuple(margins))
