"""Muon against torch's and a naive loop, who trains what, and the state that is saved."""

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from blockdraft.errors import CheckpointError, ConfigError
from blockdraft.training.optim.muon import orthogonalize, orthogonalize_all
from blockdraft.training.optim.optimizers import OptimizerConfig, build_optimizers


class Toy(nn.Module):
    """Linear layers of two shapes, tall and flat, norms, and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(24, 8, bias=False)
        self.layers = nn.ModuleList(nn.Linear(8, 20) for _ in range(2))
        self.down = nn.Linear(20, 8, bias=False)
        self.norm = nn.LayerNorm(8)
        self.table = nn.Embedding(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x) + self.table.weight[0]
        for layer in self.layers:
            x = x + self.down(torch.tanh(layer(x)))
        return self.norm(x)


def toy(seed: int = 0) -> Toy:
    torch.manual_seed(seed)
    return Toy()


def backward(model: nn.Module, step: int) -> None:
    inputs = torch.randn(6, 24, generator=torch.Generator().manual_seed(step))
    model(inputs).pow(3).sum().backward()


def run(model: Toy, config: OptimizerConfig, steps: range) -> None:
    optimizers = build_optimizers(model, config)
    for step in steps:
        optimizers.zero_grad()
        backward(model, step)
        optimizers.step()


def naive_orthogonalized(matrix: Tensor) -> Tensor:
    """The same iteration written out in fp64, on the matrix as it stands."""
    x = matrix.double()
    x = x / x.square().sum().sqrt()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


@pytest.mark.parametrize("shape", [(8, 8), (6, 17), (17, 6)])
def test_orthogonalized_as_a_naive_loop_in_double_precision(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.05)):
        found = orthogonalize_all([matrix.to(dtype)], 5)[0]
        assert found.shape == shape and found.dtype == dtype
        expected = naive_orthogonalized(matrix)
        torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=0)


def test_a_batch_is_orthogonalized_as_its_matrices_one_by_one() -> None:
    stack = torch.randn(3, 6, 17, generator=torch.Generator().manual_seed(2)).bfloat16()
    together = orthogonalize(stack, 5)
    for one, matrix in zip(together, stack, strict=True):
        torch.testing.assert_close(one, orthogonalize(matrix, 5), atol=0.02, rtol=0)
    singular = cast(Tensor, torch.linalg.svdvals(together.float()))
    assert singular.min() > 0.4 and singular.max() < 1.4


def test_an_accelerator_takes_equal_shapes_together_and_keeps_the_order() -> None:
    shapes = [(4, 6), (6, 4), (3, 3), (4, 6)]
    on_meta = [torch.empty(shape, device="meta") for shape in shapes]
    assert [tuple(one.shape) for one in orthogonalize_all(on_meta, 5)] == shapes


def test_a_zero_gradient_stays_finite() -> None:
    assert orthogonalize(torch.zeros(3, 5), 5).eq(0).all()


def test_ten_steps_of_muon_are_torchs_bit_for_bit() -> None:
    ours, theirs = toy(), toy()
    config = OptimizerConfig(name="muon", lr=1e-2, muon_lr=2e-2, weight_decay=0.1)
    run(ours, config, range(10))
    matrices = {"fc.weight", "layers.0.weight", "layers.1.weight", "down.weight"}
    named = dict(theirs.named_parameters())
    muon = torch.optim.Muon(
        [named[name] for name in sorted(matrices)],
        lr=2e-2,
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    decayed = [named["table.weight"]]
    rest = [p for name, p in named.items() if name not in {*matrices, "table.weight"}]
    adamw = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
        fused=True,
    )
    for step in range(10):
        muon.zero_grad()
        adamw.zero_grad()
        backward(theirs, step)
        muon.step()
        adamw.step()
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, named[name]), name


def test_update_has_the_root_mean_square_of_adamw() -> None:
    layer = nn.Linear(64, 256, bias=False)
    model = nn.Sequential(layer)
    before = layer.weight.detach().clone()
    optimizers = build_optimizers(model, OptimizerConfig(muon_lr=1e-2, weight_decay=0.0))
    model(torch.randn(512, 64)).pow(2).sum().backward()
    optimizers.step()
    change = float((layer.weight.detach() - before).square().mean().sqrt())
    assert change == pytest.approx(0.2 * 1e-2, rel=0.25)


def test_adamw_decays_matrices_only() -> None:
    model = toy()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    config = OptimizerConfig(name="adamw", lr=0.1, weight_decay=0.5)
    optimizers = build_optimizers(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    for name, parameter in model.named_parameters():
        factor = 0.95 if parameter.ndim == 2 else 1.0
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


def test_named_layers_are_left_to_adamw() -> None:
    names = build_optimizers(toy(), OptimizerConfig(adamw_names=("fc",))).state_dict().keys()
    assert "adamw.exp_avg.fc.weight" in names
    assert "muon.momentum.layers.0.weight" in names
    with pytest.raises(ConfigError, match="adamw_names has 'markov'"):
        build_optimizers(toy(), OptimizerConfig(adamw_names=("markov",)))


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_a_loaded_state_goes_on_bit_for_bit(name: str) -> None:
    config = OptimizerConfig(name="muon" if name == "muon" else "adamw")
    straight, resumed = toy(), toy()
    run(straight, config, range(0))
    optimizers = build_optimizers(straight, config)
    again = build_optimizers(resumed, config)
    for step in range(6):
        if step == 3:
            resumed.load_state_dict(straight.state_dict())
            again.load_state_dict({n: t.clone() for n, t in optimizers.state_dict().items()})
        both = ((straight, optimizers),) if step < 3 else ((straight, optimizers), (resumed, again))
        for model, one in both:
            one.zero_grad()
            backward(model, step)
            one.step()
    for left, right in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(left, right)


def test_all_moments_are_fp32_and_there_before_the_first_step() -> None:
    """ModelOpt #2483: masters in fp32 with moments in bf16 are silently a little worse."""
    before = build_optimizers(toy(), OptimizerConfig()).state_dict()
    assert all(tensor.dtype == torch.float32 for tensor in before.values())
    with pytest.raises(ConfigError, match=r"fc.weight is torch.bfloat16"):
        build_optimizers(toy().bfloat16(), OptimizerConfig())
    coarse = {name: tensor.bfloat16() for name, tensor in before.items()}
    with pytest.raises(CheckpointError, match=r"expected .* torch\.float32"):
        build_optimizers(toy(), OptimizerConfig()).load_state_dict(coarse)


def test_a_state_of_another_optimizer_is_refused() -> None:
    state = build_optimizers(toy(), OptimizerConfig(name="adamw")).state_dict()
    with pytest.raises(CheckpointError, match="names differ, such as"):
        build_optimizers(toy(), OptimizerConfig(name="muon")).load_state_dict(state)


def test_the_factor_scales_both_rates() -> None:
    model = toy()
    before = [p.detach().clone() for p in model.parameters()]
    optimizers = build_optimizers(model, OptimizerConfig(lr=0.1, muon_lr=0.2))
    optimizers.set_lr_factor(0.0)
    backward(model, 0)
    optimizers.step()
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    optimizers.set_lr_factor(0.5)
    assert math.isclose(optimizers.lr, 0.1)
    optimizers.zero_grad()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptimizerConfig(lr=0.0), "lr is 0"),
        (lambda: OptimizerConfig(betas=(0.9, 1.0)), "betas are"),
        (lambda: OptimizerConfig(weight_decay=-0.1), "weight_decay is"),
        (lambda: OptimizerConfig(ns_steps=0), "ns_steps is 0"),
    ],
)
def test_refuses_settings_out_of_range(make: Callable[[], OptimizerConfig], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
