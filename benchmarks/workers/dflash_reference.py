"""Worker of the public DFlash reference (`dflash` on PyPI): its Transformers loop, mode `dflash`.

The loop's own statistics call CUDA and are left off; target passes are counted from outside.
"""

import importlib
import importlib.metadata
from typing import Protocol, cast

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from workers.protocol import Answer, Loaded, Request, Settings, Stopwatch, serve
from workers.target_passes import HookedModule, counted_passes


class ReferenceDrafter(Protocol):
    """The part of the reference's draft model that is used here."""

    block_size: int

    def eval(self) -> "ReferenceDrafter": ...


class DrafterClass(Protocol):
    def from_pretrained(
        self, folder: str, *, attn_implementation: str, dtype: torch.dtype, local_files_only: bool
    ) -> ReferenceDrafter: ...


class ReferenceModule(Protocol):
    """The part of `dflash.model` that is used here."""

    DFlashDraftModel: DrafterClass

    def dflash_generate(
        self,
        model: ReferenceDrafter,
        target: HookedModule,
        input_ids: Tensor,
        max_new_tokens: int,
        stop_token_ids: list[int] | None,
        *,
        temperature: float,
        block_size: int | None,
    ) -> Tensor: ...


def load(settings: Settings) -> Loaded:
    """Raises ValueError for another mode and for missing drafter."""
    if settings.mode != "dflash" or settings.drafter is None:
        raise ValueError("this worker has the mode dflash only, with a drafter folder")
    torch.set_num_threads(settings.threads)
    dtype = cast(torch.dtype, getattr(torch, settings.dtype))
    reference = cast(ReferenceModule, importlib.import_module("dflash.model"))
    target = cast(
        HookedModule,
        AutoModelForCausalLM.from_pretrained(
            settings.model, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        ).eval(),
    )
    drafter = reference.DFlashDraftModel.from_pretrained(
        settings.drafter, attn_implementation="sdpa", dtype=dtype, local_files_only=True
    ).eval()
    block_len = drafter.block_size if settings.draft_len is None else settings.draft_len + 1

    def answer(request: Request) -> Answer:
        with counted_passes(target) as counter:
            watch = Stopwatch()
            input_ids = torch.tensor([request.prompt_ids])
            output_ids = reference.dflash_generate(
                drafter,
                target,
                input_ids,
                request.max_new_tokens,
                list(request.stop_ids) or None,
                temperature=0.0,
                block_size=block_len,
            )
            new_ids = cast(list[int], output_ids[0, len(request.prompt_ids) :].tolist())
            seconds = watch.seconds()
        return Answer(token_ids=tuple(new_ids), seconds=seconds, steps=counter.passes - 1)

    return Loaded(
        versions={
            name: importlib.metadata.version(name) for name in ("dflash", "transformers", "torch")
        },
        notes=(f"{settings.dtype}, sdpa, {torch.get_num_threads()} threads, block of {block_len}",),
        answer=answer,
    )


if __name__ == "__main__":
    serve(load)
