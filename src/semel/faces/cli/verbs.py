"""The form of a verb: a click command that returns its exit code and whose help ends with examples."""

from collections.abc import Callable, Sequence
from typing import Any

import click


class Verb(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str], **given: Any) -> None:
        """`examples` are whole command lines."""
        super().__init__(*args, **given)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        write_examples(formatter, self.examples)


class VerbGroup(click.Group):
    """A verb with verbs of its own below it; it does something by itself too."""

    def __init__(self, *args: Any, examples: Sequence[str], **given: Any) -> None:
        """`examples` are whole command lines."""
        super().__init__(*args, **{**given, "invoke_without_command": True})
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples."""
        write_examples(formatter, self.examples)


def verb_group(*examples: str) -> Callable[[Callable[..., int]], click.Group]:
    """Make a function a verb that has verbs below it."""
    return click.group(cls=VerbGroup, examples=examples)


def verb(*examples: str, name: str | None = None) -> Callable[[Callable[..., int]], click.Command]:
    """Make a function a verb; `name` where the verb is a word that no function can be called."""
    return click.command(name, cls=Verb, examples=examples)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Each example on a line of its own, unwrapped, so that it can be copied."""
    with formatter.section("Examples"):
        for example in examples:
            formatter.write(f"{'':{formatter.current_indent}}{example}\n")
