"""Two gloo ranks against one: replicas and shards, both optimizers, clipping, resuming."""

import json
from pathlib import Path
from typing import cast

import pytest
import torch
from rank_processes import start_ranks
from torch import Tensor

from blockdraft.errors import ConfigError
from blockdraft.training.ranks.distributed import Ranks, all_reduce_sums, any_rank, joined_ranks
from blockdraft.training.run.checkpoints import Checkpoints
from blockdraft.training.run.state import Snapshot

WORKER = Path(__file__).with_name("ranks_worker.py")
END = 20


def end_of(folder: Path) -> Snapshot:
    return Checkpoints(folder).load(END)


def tensors_of(snapshot: Snapshot) -> dict[str, Tensor]:
    return {**snapshot.model, **snapshot.optimizers, **(snapshot.ema or {})}


@pytest.mark.slow
def test_two_ranks_equal_one_and_resume_bit_for_bit(tmp_path: Path) -> None:
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    start_ranks(WORKER, 2, ranks)
    losses = cast(dict[str, list[float]], json.loads((ranks / "losses.json").read_text()))
    for optimizer in ("muon", "adamw"):
        alone = losses[f"none-{optimizer}"]
        assert len(alone) == END
        expected = tensors_of(end_of(ranks / f"none-{optimizer}"))
        for mode in ("ddp", "fsdp"):
            name = f"{mode}-{optimizer}"
            assert losses[name] == pytest.approx(alone, rel=1e-5), name
            straight = end_of(ranks / name)
            found = tensors_of(straight)
            assert found.keys() == expected.keys()
            for key, tensor in expected.items():
                assert found[key].shape == tensor.shape, key

            again = end_of(ranks / f"{name}-resumed")
            assert losses[f"{name}-resumed"] == losses[name][10:], name
            for key, tensor in found.items():
                assert torch.equal(tensor, tensors_of(again)[key]), (name, key)
            assert straight.world_size == 2
            assert straight.rng.keys() == again.rng.keys() == {"torch.0", "torch.1"}
            assert all(torch.equal(straight.rng[key], again.rng[key]) for key in straight.rng)


def test_without_torchrun_a_process_is_alone() -> None:
    with joined_ranks("cpu", environment={}) as ranks:
        assert ranks == Ranks() and ranks.is_main and ranks.is_alone
        assert all_reduce_sums(torch.tensor([1.5, 2.0]), ranks).equal(torch.tensor([1.5, 2.0]))
        assert any_rank(True, ranks) and not any_rank(False, ranks)


def test_an_incomplete_environment_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match="RANK is None in the environment"),
        joined_ranks("cpu", environment={"WORLD_SIZE": "2"}),
    ):
        pass


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="device is 'tpu'"), joined_ranks("tpu", environment={}):
        pass
    here = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": str(torch.cuda.device_count())}
    with pytest.raises(ConfigError, match="has no GPU"), joined_ranks("cuda", environment=here):
        pass
