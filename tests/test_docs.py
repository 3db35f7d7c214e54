"""The documentation is complete and holds together: every option, every subcommand, every link.

The pages are written by hand where words help and checked here, so that a new option cannot ship unexplained.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(text: str) -> str:
    return FENCE.sub("", text)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    names = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page.read_text())))
    return {name.strip().replace(" ", "-") for name in names}


def sections(text: str) -> dict[str, str]:
    """The text under each heading, up to the next one, by the heading without its markup."""
    parts = re.split(HEADING, text)
    return {
        title.replace("`", "").strip(): body for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def commands(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from commands(child, (*path, name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        goal = (page.parent / name).resolve() if name else page
        if not goal.exists() or (anchor and goal.suffix == ".md" and anchor not in anchors(goal)):
            broken.append(target)
    assert broken == []


def test_every_page_is_in_the_index() -> None:
    linked = {
        (DOCS / link.partition("#")[0]).resolve() for link in LINK.findall((DOCS / "index.md").read_text())
    }
    assert [
        str(page.relative_to(DOCS)) for page in PAGES[3:] if page.name != "index.md" and page not in linked
    ] == []


def test_every_make_target_named_in_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert named - targets == set()
    assert "run" in named and "test" in named


def test_every_test_named_in_the_docs_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"`(tests/[\w/.-]+\.py)`", page.read_text())}
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_apis_and_versions_that_are_served_are_those_on_the_page() -> None:
    api = pytest.importorskip("moldau.server.api")
    from moldau.wire.api import camel_name

    served = {
        (int(entry.key), camel_name(entry.key), f"{entry.first}-{entry.last}".removesuffix(f"-{entry.first}"))
        for entry in api.APIS
    }
    wire = sections((DOCS / "compatibility.md").read_text())["The wire"]
    rows = re.findall(r"^\| (\d+) \| (\w+) \| ([\d-]+) \|", wire, re.MULTILINE)
    assert {(int(key), name, versions) for key, name, versions in rows} == served
    assert len(rows) == len(served)


def test_every_option_is_documented() -> None:
    pytest.importorskip("moldau.config.option")
    names = sorted(option_names())
    assert names, "no options found"
    text = (DOCS / "configuration.md").read_text()
    assert [name for name in names if f"`{name}`" not in text] == []


def option_names() -> set[str]:
    """Every option of every section in `moldau.config`, wherever it is declared."""
    import moldau.config
    from moldau.config.option import Section

    names = set()
    for module in pkgutil.walk_packages(moldau.config.__path__, "moldau.config."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Section):
                names |= {option.name for option in value.OPTIONS if not option.internal}
    return names


def test_the_options_of_clients_are_told_as_they_are_declared() -> None:
    """`python tools/client_options.py` writes the tables anew."""
    done = subprocess.run([sys.executable, ROOT / "tools" / "client_options.py", "--check"], check=False)
    assert done.returncode == 0


def test_every_metric_of_a_producer_is_documented() -> None:
    """By its name, or by that of one it differs from in its last word (-rate, -total, -avg, -max)."""
    from moldau.client.producing.metrics import ProducerMetrics

    def stem(name: str) -> str:
        return re.sub(r"-(rate|total|avg|max)$", "", name)

    told = sections((DOCS / "client.md").read_text())["Metrics"]
    stems = {stem(name) for name in re.findall(r"`([a-z][a-z-]+)`", told)}
    measured = ProducerMetrics().snapshot(
        0, in_flight=0, memory=0, memory_used=0, waiting=0, connections=0, metadata_age_s=0
    )
    assert {name for name in measured if stem(name) not in stems} == set()


def test_every_command_and_its_options_are_documented() -> None:
    cli = pytest.importorskip("moldau.cli.main")
    text = (DOCS / "cli.md").read_text()
    by_heading = sections(text)
    missing = []
    for path, command in commands(cli.main, ("moldau",)):
        title = " ".join(path)
        if title not in by_heading:
            missing.append(f"a section '{title}'")
            continue
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                name = max(parameter.opts, key=len)
                if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", by_heading[title]):
                    missing.append(f"{title} {name}")
    assert missing == []


def command_named(words: list[str]) -> tuple[str, click.Command] | None:
    """The subcommand that a command line begins with, and its title; None if it names none."""
    from moldau.cli.main import main

    command: click.Command | None = main
    path = [words[0]]
    for word in words[1:]:
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        command = command.get_command(click.Context(command), word)
        path.append(word)
    return (" ".join(path), command) if command is not None and len(path) > 1 else None


def flags(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts} | {"--help"}


def test_every_option_on_the_page_of_commands_exists() -> None:
    unknown = []
    for title, body in sections((DOCS / "cli.md").read_text()).items():
        found = command_named(title.split()) if title.startswith("moldau ") else None
        if found is not None:
            told = re.findall(r"(?:^\| |, )`(--?[a-z][\w-]*)", body, re.MULTILINE)
            unknown += [f"{title} {flag}" for flag in told if flag not in flags(found[1])]
    assert unknown == []


def calls(text: str) -> Iterator[list[str]]:
    """The words of each call of the command in the examples of a page."""
    for kind, fence in re.findall(r"^```(sh|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in fence.splitlines():
            if kind == "console":
                if not line.startswith("$ "):
                    continue  # what was printed
                line = line[2:]
            for call in re.split(r"\||;|\$\(|\)|&&|#", line):
                words = call.split()
                if words and words[0].rpartition("/")[2] == "moldau":
                    yield ["moldau", *words[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_examples_exist_with_their_options(page: Path) -> None:
    unknown = []
    for words in calls(page.read_text()):
        found = command_named(words)
        if found is None:
            unknown.append(" ".join(words))
            continue
        told = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        unknown += [f"{found[0]} {flag}" for flag in told if flag not in flags(found[1])]
    assert unknown == []


def test_the_pages_have_examples_of_commands() -> None:
    assert len([words for page in PAGES for words in calls(page.read_text())]) > 20
