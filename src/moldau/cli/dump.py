"""`moldau dump`: what is in the files of a data directory, in the words of Kafka's own tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

import click

from moldau.cli.dump_files import Item, UnknownFile, read_items
from moldau.cli.output import print_error
from moldau.log.errors import CorruptFileError
from moldau.runtime.files import RealFileSystem
from moldau.wire.codec import ProtocolError
from moldau.wire.errors import KafkaError


@click.command(
    "dump",
    help="""Show what is in the files of a data directory.

    Segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots (.snapshot), snapshots of the
    cluster's metadata (.checkpoint), the *-checkpoint files, partition.metadata, quorum-state and
    meta.properties, recognised by their names.""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Show the records of each batch, without keys and values.")
@click.option("--records", is_flag=True, help="Show the records with keys and values; metadata is decoded.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Check indexes against their segments, and print only that."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with an object for each file.")
def command(files: Sequence[str], deep: bool, records: bool, index_sanity_check: bool, as_json: bool) -> None:
    problems: list[str] = []
    show = _print_json if as_json else _print_text
    for number, path in enumerate(files):
        items = _items(path, problems, deep or records, records, index_sanity_check)
        show(path, items, first=number == 0)
    if as_json:
        click.echo("\n]")
    for problem in problems:
        print_error(problem)
    if problems:
        sys.exit(1)


def _items(path: str, problems: list[str], deep: bool, content: bool, sanity_check: bool) -> Iterator[Item]:
    """The items of a file as far as it can be read; what is wrong with it is added to `problems`."""
    try:
        for item in read_items(RealFileSystem(), path, deep=deep, content=content, sanity_check=sanity_check):
            if item.problem is not None:
                problems.append(f"{path}: {item.problem}")
            yield item
    except UnknownFile as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
    except CorruptFileError as error:
        problems.append(str(error) if path in str(error) else f"{path}: {error}")
    except (KafkaError, ProtocolError) as error:
        problems.append(f"{path}: {error}")


def _print_text(path: str, items: Iterator[Item], *, first: bool) -> None:
    click.echo(f"Dumping {path}")
    for item in items:
        click.echo(item.text)


def _print_json(path: str, items: Iterator[Item], *, first: bool) -> None:
    """An object for the file, with an item a line, written as it is read: segments are large."""
    click.echo("[" if first else ",")
    click.echo(f'{{"file": {json.dumps(path)}, "items": [', nl=False)
    separator = "\n"
    for item in items:
        click.echo(separator + json.dumps(item.fields, ensure_ascii=False), nl=False)
        separator = ",\n"
    click.echo("]}", nl=False)
