"""Prompts as embeddings (C21): not taken, and said so, rather than read as something else."""

import pytest

from blockdraft.serving.errors import ApiError
from blockdraft.serving.protocol.completions import CompletionRequest
from blockdraft.serving.protocol.reading import parse_request


@pytest.mark.parametrize("name", ["prompt_embeds", "inputs_embeds"])
def test_prompt_embeddings_are_refused_by_name_c21(name: str) -> None:
    with pytest.raises(ApiError, match=name) as error:
        parse_request(CompletionRequest, {"prompt": "x", name: "AAAA"})
    assert error.value.status == 400
    assert error.value.param == name
