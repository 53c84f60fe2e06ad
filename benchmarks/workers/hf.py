"""Worker of Hugging Face `generate`, plain (`plain`) or with prompt lookup (`lookup`).

It adds nothing to the library: batch 1, SDPA attention, its dynamic cache.
"""

from typing import Protocol, cast

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, GenerationConfig

from workers.protocol import Answer, Loaded, Request, Settings, Stopwatch, serve
from workers.target_passes import HookedModule, counted_passes

LOOKUP_LEN = 10
"""Drafts a step of `prompt_lookup_num_tokens` when the settings name none."""


class GeneratingModel(HookedModule, Protocol):
    """The part of a transformers model that is used here."""

    generation_config: GenerationConfig

    def generate(
        self,
        input_ids: Tensor,
        *,
        attention_mask: Tensor,
        generation_config: GenerationConfig,
        prompt_lookup_num_tokens: int | None,
    ) -> Tensor: ...


def load(settings: Settings) -> Loaded:
    """Raises ValueError for a mode that this worker does not have."""
    lookup_len = _lookup_len(settings)
    torch.set_num_threads(settings.threads)
    model = cast(
        GeneratingModel,
        AutoModelForCausalLM.from_pretrained(
            settings.model,
            dtype=getattr(torch, settings.dtype),
            attn_implementation="sdpa",
            local_files_only=True,
        ).eval(),
    )
    # What the model's own configuration leaves open would otherwise fill each request's.
    model.generation_config = GenerationConfig()
    notes = ["tokens of the first pass count as the prefill's"] if lookup_len else []
    return Loaded(
        versions={"transformers": transformers.__version__, "torch": torch.__version__},
        notes=(
            f"{settings.dtype}, sdpa, {torch.get_num_threads()} threads, "
            f"prompt_lookup_num_tokens={lookup_len}",
            *notes,
        ),
        answer=lambda request: _answer(model, request, lookup_len),
    )


def _lookup_len(settings: Settings) -> int | None:
    match settings.mode:
        case "plain":
            return None
        case "lookup":
            return settings.draft_len or LOOKUP_LEN
        case other:
            raise ValueError(f"mode {other!r}: this worker has plain and lookup")


def _answer(model: GeneratingModel, request: Request, lookup_len: int | None) -> Answer:
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=request.max_new_tokens,
        eos_token_id=list(request.stop_ids) or None,
        pad_token_id=0,
    )
    with counted_passes(model) as counter, torch.inference_mode():
        watch = Stopwatch()
        input_ids = torch.tensor([request.prompt_ids])
        output_ids = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=config,
            prompt_lookup_num_tokens=lookup_len,
        )
        new_ids = cast(list[int], output_ids[0, len(request.prompt_ids) :].tolist())
        seconds = watch.seconds()
    return Answer(token_ids=tuple(new_ids), seconds=seconds, steps=counter.passes - 1)


if __name__ == "__main__":
    serve(load)
