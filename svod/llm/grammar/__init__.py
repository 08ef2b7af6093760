"""What an answer may look like: a JSON schema, a regular expression or a grammar, as automata."""

from svod.llm.grammar.ebnf import grammar_form
from svod.llm.grammar.forms import Form
from svod.llm.grammar.regex import regex_form
from svod.llm.grammar.schema import json_form, schema_form
from svod.reference.docstrings import describe

__all__ = ["Form", "grammar_form", "json_form", "regex_form", "schema_form"]

describe(globals(), "svod.llm.grammar")
