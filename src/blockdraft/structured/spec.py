"""`GrammarSpec`: what a request's output must look like, as plain values.

It checks nothing about the grammar itself; that is done when it is compiled.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from blockdraft.errors import RequestError

Kind = Literal["json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarSpec:
    """A grammar as its author wrote it. Raises RequestError for an unknown kind.

    `value` is the JSON text of a schema, a regular expression, the JSON text of a list of strings,
    a grammar in EBNF (the GBNF dialect, its start rule called `root`) or the JSON text of a
    structural tag; "json_object" (any JSON object) needs none.

    `asked` is the spec that this one was made of, checked first and named in messages: an author
    knows what he wrote, not what became of it. `name`: another name than the kind's, for the same.
    """

    kind: Kind
    value: str = ""
    name: str = ""
    asked: "GrammarSpec | None" = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise RequestError(f"there is no grammar kind {self.kind!r}; use one of {known}")
        if self.kind == "json_object" and self.value:
            raise RequestError("json_object takes no value; use json_schema to give a schema")

    @property
    def title(self) -> str:
        """What its author calls it."""
        return self.name or (self.kind if self.asked is None else self.asked.title)
