"""What an answer may look like: a JSON schema, a regular expression or a grammar, as automata."""

from svod.llm.grammar.automaton import Automaton
from svod.llm.grammar.ebnf import grammar_form
from svod.llm.grammar.masks import Form, FormConstraint, Vocabulary
from svod.llm.grammar.regex import regex_form
from svod.llm.grammar.schema import json_form, schema_form

__all__ = [
    "Automaton",
    "Form",
    "FormConstraint",
    "Vocabulary",
    "grammar_form",
    "json_form",
    "regex_form",
    "schema_form",
]
