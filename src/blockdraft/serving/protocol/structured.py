"""How clients ask for constrained output: `response_format` and `structured_outputs`.

Shapes only; what is in a schema or grammar is checked when it is compiled.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from blockdraft.serving.protocol.wire import JsonObject, Wire

SourceText = Annotated[str, Field(min_length=1, max_length=100_000)]


class JsonSchemaFormat(Wire):
    """OpenAI's wrapper of a schema; `strict` is always meant, so false changes nothing."""

    name: Annotated[str, Field(max_length=64)]
    description: str | None = None
    json_schema: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextFormat(Wire):
    type: Literal["text"]


class JsonObjectFormat(Wire):
    type: Literal["json_object"]


class SchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat


class StructuralTagFormat(Wire):
    """xgrammar's structural tag, in its present form (`format`) or the older one."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    type: Literal["structural_tag"]
    format: JsonObject | None = None
    structures: list[JsonObject] | None = None
    triggers: list[str] | None = None


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | SchemaFormat | StructuralTagFormat,
    Field(discriminator="type"),
]


class StructuredOutputs(Wire):
    """Exactly one of these."""

    json_value: JsonObject | str | None = Field(default=None, alias="json")
    regex: SourceText | None = None
    choice: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=10_000)]],
            Field(min_length=1, max_length=1000),
        ]
        | None
    ) = None
    grammar: SourceText | None = None
    json_object: bool | None = None
    structural_tag: SourceText | None = None
