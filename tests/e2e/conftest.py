"""Small random models in the form that the command line loads: folders with weights.

They write nonsense, but through real files, caches and tokenizers.
"""

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<pad>", "<bos>", "<end>", "<user>", "<assistant>", "<system>", "<x>", "<mask>")

CHAT_TEMPLATE = (
    "<bos>{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}<end>"
    "{% endfor %}{% if shout %}LOUD{% endif %}<assistant>"
)


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(
    request: pytest.FixtureRequest, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs measured for small models stay out of the user's cache, where the real model is."""
    if request.node.get_closest_marker("acceptance") is None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache_dir))


@pytest.fixture
def ids_pair(data_dir: Path) -> list[str]:
    """Arguments for a target without a tokenizer and its drafter; vocabulary 320, blocks of 8."""
    case = data_dir / "golden" / "generate_llama_v1_full"
    return ["--target", str(case / "target"), "--drafter", str(case / "draft")]


@pytest.fixture(scope="session")
def text_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same target with a byte tokenizer and a chat template."""
    case = Path(__file__).parents[1] / "data" / "golden" / "generate_llama_v1_full"
    folder = tmp_path_factory.mktemp("models") / "target"
    shutil.copytree(case / "target", folder)
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL)}
    for character in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<end>",
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def text_pair(text_target: Path, data_dir: Path) -> list[str]:
    """Arguments for the target with a tokenizer and its drafter."""
    draft = data_dir / "golden" / "generate_llama_v1_full" / "draft"
    return ["--target", str(text_target), "--drafter", str(draft)]


@pytest.fixture
def prompt_file(tmp_path: Path) -> Path:
    """Three prompts, one of them with two turns, one with a line separator inside."""
    path = tmp_path / "prompts.jsonl"
    records = [
        {"id": "a", "category": "math", "turns": ["two and two"]},
        {"id": "b", "category": "chat", "turns": ["hello", "and\u2028again"]},
        {"id": "c", "category": "math", "turns": ["three"]},
    ]
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
