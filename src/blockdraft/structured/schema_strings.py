"""Rewrites what xgrammar 0.2 compiles to strings that are no JSON: lengths and email addresses.

Its grammar for a string of bounded length lets raw control characters through, and that for an
email address lone backslashes; a pattern does neither. Pure.
"""

from blockdraft.errors import RequestError
from blockdraft.structured.schema import schema_nodes

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_ATOM = "[A-Za-z0-9_%+-]+"
EMAIL_PATTERN = rf"^{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL})+$"
"""Plain addresses: every match is a valid one, not the other way round."""


def use_patterns(schema: object) -> None:
    """Change a checked schema in place. Raises RequestError for lengths that contradict."""
    for where, node in schema_nodes(schema):
        if node.get("format") == "email":
            del node["format"]
            node["pattern"] = EMAIL_PATTERN
        elif "minLength" in node or "maxLength" in node:
            low, high = node.pop("minLength", 0), node.pop("maxLength", "")
            if isinstance(low, int) and isinstance(high, int) and low > high:
                raise RequestError(
                    f"the JSON schema's {where} has minLength {low} above maxLength {high}"
                )
            node["pattern"] = f"^.{{{low},{high}}}$"
