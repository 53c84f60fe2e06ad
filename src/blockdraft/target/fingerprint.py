"""`fingerprint_of`: a short name for a target's weights, by which what was made of it is known.

It proves nothing about weights that it does not look at.
"""

import hashlib

import torch

from blockdraft.decoding.interfaces import TargetModel

FINGERPRINT_IDS = 256


def fingerprint_of(target: TargetModel) -> str:
    """A cheap hash of a target: its sizes and 256 rows of its embedding, rounded to bf16.

    The same for every dtype that the same weights are loaded in. Targets that share their
    embedding table are not told apart by it.
    """
    spec = target.spec
    ids = torch.linspace(0, spec.vocab_size - 1, min(FINGERPRINT_IDS, spec.vocab_size)).long()
    rows = target.embed(ids).to(torch.bfloat16).cpu().view(torch.int16).numpy()
    digest = hashlib.sha256(f"{spec.vocab_size} {spec.hidden_size} {spec.num_layers}".encode())
    digest.update(rows.astype("<i2").tobytes())
    return digest.hexdigest()[:16]
