"""A token at a time beside a block: the cost of drafting on the page, and an EAGLE-3 folder."""

import json
from pathlib import Path
from typing import cast

import pytest
import torch
from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]: bare PathLike

from blockdraft.checkpoint.eagle3_format import parse_eagle3
from blockdraft.cli.main import main
from blockdraft.drafter.eagle3_model import eagle3_shapes

pytestmark = pytest.mark.slow

SHORT = ["--max-tokens", "6", "--requests", "3", "--repeats", "1", "--concurrency", "1"]
Document = dict[str, object]


def rows(document: Document, name: str) -> list[Document]:
    return cast("list[Document]", document[name])


def bench(argv: list[str], out: Path) -> tuple[Document, str]:
    """The document and the page of a run."""
    assert main(["bench", *argv, *SHORT, "--width", "fixed:4", "--out", str(out)]) == 0
    document = cast(Document, json.loads((out / "results.json").read_text()))
    return document, (out / "report.html").read_text()


def eagle3_folder(folder: Path, target: Path) -> Path:
    """Random weights that fit `target`; every second id can be drafted."""
    config = cast(Document, json.loads((target / "config.json").read_text()))
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": cast(int, config["vocab_size"]) // 2,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    facts = parse_eagle3(config, "here")
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(shape, generator=generator)
        for name, shape in eagle3_shapes(facts.config).items()
    }
    state["d2t"] = torch.arange(facts.config.draft_vocab_size)
    save_file(state, folder / "model.safetensors")
    return folder


def test_the_page_shows_what_a_chain_costs(
    text_pair: list[str], prompt_file: Path, tmp_path: Path
) -> None:
    document, page = bench([*text_pair, "--prompts", str(prompt_file)], tmp_path / "out")
    draft = rows(cast(Document, document["costs"]), "draft")
    kinds = {(one["kind"], one["weights"]) for one in draft}
    assert kinds == {("block", "trained"), ("autoregressive", "random")}
    assert "EAGLE-3 shape (a token at a time; random weights: cost only)" in page
    assert "beyond its block of 8 (block at once)" in page


def test_an_eagle_3_folder_is_a_lane(text_target: Path, prompt_file: Path, tmp_path: Path) -> None:
    """Measured like any drafter: its acceptance, and the text of plain decoding."""
    folder = eagle3_folder(tmp_path / "eagle", text_target)
    argv = ["--target", str(text_target), "--drafter", str(folder), "--prompts", str(prompt_file)]
    document, _ = bench(argv, tmp_path / "out")
    lanes = {str(lane["name"]): lane for lane in rows(document, "lanes")}
    lane = lanes["eagle-3 fixed:4"]
    assert lane["kind"] == "autoregressive" and lane["drafter"] == str(folder)
    (figure,) = [one for one in rows(document, "figures") if one["lane"] == "eagle-3 fixed:4"]
    assert cast(float, figure["tau"]) >= 1
    (quality,) = [one for one in rows(document, "quality") if one["lane"] == "eagle-3 fixed:4"]
    assert quality["compared"] == quality["identical"] == 3
    draft = rows(cast(Document, document["costs"]), "draft")
    assert {(one["name"], one["weights"]) for one in draft} == {(str(folder), "trained")}
    stack = cast(list[Document], document["stack"])
    assert {one["verdict"] for one in stack} == {"unknown"}
