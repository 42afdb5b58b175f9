"""Reads a verb's options into its dataclass; whatever is wrong with them becomes one sentence."""

import contextlib
import dataclasses
import io
import itertools
import typing
from collections.abc import Sequence
from typing import TypeVar

import tyro

from ashore import names

Options = TypeVar("Options")


class UsageError(ValueError):
    """A command that cannot be understood; the message is a sentence for whoever typed it."""


def read(options_type: type[Options], words: Sequence[str], program: str) -> Options:
    """Parse `words` into a dataclass whose fields are the options; required fields are positional."""
    _refuse_unknown_options(options_type, words, program)
    complaints = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaints):
            return tyro.cli(
                options_type,
                args=list(words),
                prog=program,
                config=(tyro.conf.PositionalRequiredArgs, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as end:
        if not end.code:
            raise  # --help has been shown
        sentence = _one_sentence(complaints.getvalue()).removeprefix(f"{options_type.__name__}: ")
        raise UsageError(f"{sentence[0].upper()}{sentence[1:]} (see {program} --help).") from None


def _one_sentence(complaint: str) -> str:
    """What the parser's box says, without the box, its ruled-off explanations, its line breaks and its full stop.

    The box has its title in the upper border, or above a rule of its own where the terminal cannot draw borders.
    """
    lines = [line.strip(" │") for line in complaint.splitlines() if line.strip(" │")]
    after_title = lines[1:] if complaint.lstrip().startswith("╭") else lines[2:]
    said = itertools.takewhile(lambda line: line.strip("-─╰╯"), after_title)
    sentence = " ".join(" ".join(said).split()).removesuffix("(required)").strip().rstrip(".")
    return sentence.removeprefix("Error parsing ") or "This command cannot be understood"


def _refuse_unknown_options(options_type: type, words: Sequence[str], program: str) -> None:
    """The parser explains unknown options at length; a misspelt one deserves its nearest match instead."""
    fields = _optional_fields(options_type)
    known = ["--help", *(f"--{field.name.replace('_', '-')}" for field in fields), *_aliases(options_type)]
    for word in words:
        if word == "--":
            return
        given = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and given not in known:
            raise UsageError(names.unknown(f"option of {program}", word.partition("=")[0], known))


def _aliases(options_type: type) -> list[str]:
    """Second names of options, given with `tyro.conf.arg(aliases=...)`."""
    hints = typing.get_type_hints(options_type, include_extras=True).values()
    marks = [mark for hint in hints for mark in getattr(hint, "__metadata__", ())]
    return [alias for mark in marks for alias in getattr(mark, "aliases", None) or ()]


def _optional_fields(options_type: type) -> list[dataclasses.Field[object]]:
    missing = dataclasses.MISSING
    return [
        field
        for field in dataclasses.fields(options_type)
        if field.default is not missing or field.default_factory is not missing
    ]
