"""`moldau completion`: the few lines that teach a shell to complete `moldau`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
# The variable by which the shell asks the command for completions: click's name for it.
_VARIABLE = "_MOLDAU_COMPLETE"


@click.command("completion", help="Print what teaches a shell to complete moldau.")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    from moldau.cli.main import main

    completion = get_completion_class(shell)
    assert completion is not None, "click knows these shells"
    # Not `source`, which for bash asks the installed one for its version first.
    made = completion(main, {}, "moldau", _VARIABLE)
    click.echo(made.source_template % made.source_vars())
