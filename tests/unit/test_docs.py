"""The documentation says what is: links lead somewhere, configurations load, command lines parse, modules exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from test_layers import CORE_FILES

from ibmon.alert.alerts import alert_name
from ibmon.cli import commandsdoc
from ibmon.cli.app import GROUP
from ibmon.cli.common import Settings
from ibmon.configfile import loads
from ibmon.configkeys import KEYS
from ibmon.controller.families import CONTROLLER_FAMILIES
from ibmon.exporter.families import SELF_FAMILIES, SNAPSHOT_FAMILIES
from ibmon.health.rules import RULE_BY_ID
from ibmon.notices import WORDS
from ibmon.promrules.fleet import FLEET

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {"configuration.md", "counters.md", "metrics.md", "performance.md", "detection.md", "rules.md"}
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "tests").glob("*/README.md"), *(ROOT / "deploy").rglob("*.md")]
)
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>[a-z]*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them: of two alike the second ends in -1."""
    found: set[str] = set()
    for heading in HEADING.finditer(prose(page)):
        text = LINK.sub(lambda link: link[0].partition("]")[0], heading["text"]).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        same = sum(1 for other in found if re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other))
        found.add(f"{anchor}-{same}" if same else anchor)
    return found


# ----------------------------------------------------------------------------------------------------------- links


def broken(page: Path) -> Iterator[str]:
    """The links of a page within the repository that lead nowhere."""
    for link in LINK.finditer(prose(page)):
        target = link["target"]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A\n## A `b` c!\n[x](none.md) [y](#a-b-c) [z](#d) [w](https://example.org/none) ![p](p.png)\n")
    assert list(broken(page)) == ["none.md", "#d", "p.png"]


def test_the_index_names_every_page() -> None:
    named = {link["target"].partition("#")[0] for link in LINK.finditer((DOCS / "README.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= named


def test_every_picture_is_shown() -> None:
    shown = {Path(link["target"]).name for page in PAGES for link in LINK.finditer(page.read_text())}
    assert {picture.name for picture in (DOCS / "pictures").iterdir()} <= shown


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=name_of)
def test_only_tables_and_blocks_are_wider_than_the_page(page: Path) -> None:
    assert [line for line in prose(page).splitlines() if len(line) > 120 and not line.startswith("|")] == []


# -------------------------------------------------------------------------------------------------- configurations


def configurations(page: Path) -> Iterator[tuple[str, str]]:
    """Where it stands, and the text of each configuration that a page shows, also within a ConfigMap."""
    for number, block in enumerate(BLOCK.finditer(page.read_text()), start=1):
        indent = len(block["indent"])
        body = "".join(line[indent:] for line in block["body"].splitlines(keepends=True))
        if block["kind"] == "toml":
            yield f"{name_of(page)}:{number}", body
        if block["kind"] == "yaml" and "ibmon.toml: |" in body:
            yield f"{name_of(page)}:{number}", yaml.safe_load(body)["data"]["ibmon.toml"]


SHOWN = [pair for page in PAGES for pair in configurations(page)]


@pytest.mark.parametrize(("where", "text"), SHOWN, ids=[where for where, _ in SHOWN])
def test_every_configuration_that_is_shown_loads(where: str, text: str) -> None:
    loads(text, where)


def test_there_are_configurations_to_load() -> None:
    pages = {where.partition(":")[0] for where, _ in SHOWN}
    assert {"README.md", "docs/quickstart-slurm.md", "docs/quickstart-kubernetes.md", "docs/alerts.md"} <= pages


# ---------------------------------------------------------------------------------------------------- command lines


def calls(line: str) -> Iterator[list[str]]:
    """The words of each call of ibmon in a line of a shell, with or without a prompt, behind whatever calls it."""
    try:
        lexer = shlex.shlex(re.sub(r"^\s*[$#>] ", "", line), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        words = list(lexer)
    except ValueError:  # half a quotation: no shell's line
        return
    begins = True
    for place, word in enumerate(words):
        if begins and (word == "ibmon" or word.endswith("/bin/ibmon")):
            rest = words[place + 1 :]
            ends = (number for number, other in enumerate(rest) if set(other) <= set("();<>|&"))
            yield rest[: next(ends, len(rest))]
        begins = word in {"--", "do", "then"} or set(word) <= set("();|&")


def lines(page: Path) -> Iterator[str]:
    """What a page says to type: the lines of its blocks, of `console` those behind a prompt, and indented ones."""
    for block in BLOCK.finditer(page.read_text()):
        body = block["body"].replace("\\\n", " ")
        if block["kind"] in {"", "sh"}:
            yield from body.splitlines()
        if block["kind"] == "console":
            yield from re.findall(r"^ *[$#>] .+$", body, re.MULTILINE)
    yield from re.findall(r"^    (ibmon .+)$", prose(page), re.MULTILINE)


def spans(page: Path) -> Iterator[str]:
    """Commands in the sentences of a page."""
    for span in re.findall(r"(?<!`)`(ibmon [^`]+)`(?!`)", prose(page)):
        yield " ".join(span.split())


def whole(page: Path) -> list[list[str]]:
    return [words for line in lines(page) for words in calls(line)]


def named(page: Path) -> list[list[str]]:
    return [words for span in spans(page) for words in calls(span)]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[click.Context]:
    """What would run: commands are found and their words understood, but nothing is invoked."""
    found: list[click.Context] = []

    def note(command: click.Command, context: click.Context) -> None:
        if not isinstance(command, click.Group) or context.invoked_subcommand is None:
            found.append(context)

    monkeypatch.setattr(click.Command, "invoke", note)
    return found


def parse(words: list[str]) -> None:
    GROUP.main(words, prog_name="ibmon", standalone_mode=False, obj=Settings())


def refusal(words: list[str]) -> click.ClickException | None:
    """What is wrong with a call; None where nothing is."""
    try:
        parse(words)
    except click.ClickException as error:
        return error
    return None


@pytest.mark.parametrize("page", [page for page in PAGES if whole(page)], ids=name_of)
def test_every_command_line_that_is_shown_is_understood(page: Path, parsed: list[click.Context]) -> None:
    for words in whole(page):
        parsed.clear()
        error = refusal(words)
        assert error is None, f"ibmon {shlex.join(words)}: {error.format_message()}"
        assert len(parsed) == 1, words


@pytest.mark.usefixtures("parsed")
@pytest.mark.parametrize("page", [page for page in PAGES if named(page)], ids=name_of)
def test_every_command_that_a_sentence_names_exists(page: Path) -> None:
    """A sentence may leave out what does not matter in it: a command below a group, a parameter."""
    for words in named(page):
        error = refusal(words)
        known = (
            error is None or isinstance(error, click.MissingParameter) or error.format_message() == "Missing command."
        )
        assert known, f"ibmon {shlex.join(words)}: {error.format_message() if error else ''}"


@pytest.mark.parametrize("words", ["demoo", "status --jason", "clear --rule", "maintenance start --for 2h", "events x"])
def test_a_command_line_that_is_not_understood_would_be_seen(words: str, parsed: list[click.Context]) -> None:
    with pytest.raises(click.ClickException):
        parse(words.split())
    assert parsed == []


def test_calls_are_found_wherever_a_shell_has_them() -> None:
    line = (
        '$ ( umask 077; ibmon controller key "$n" > k ) && kubectl -n ibmon exec POD -- ibmon status | cat  # ibmon x'
    )
    assert list(calls(line)) == [["controller", "key", "$n"], ["status"]]
    assert list(calls("curl localhost | grep ibmon_port_state")) == []


# ---------------------------------------------------------------------------------------------------------- modules


def test_what_the_architecture_calls_pure_is_core() -> None:
    text = (DOCS / "architecture.md").read_text()
    bullet = text.partition("- **The pure core** is")[2].partition("and the deciding half")[0]
    core = {file.relative_to(ROOT / "ibmon").with_suffix("").as_posix() for file in CORE_FILES}
    called = set(re.findall(r"`([\w/]+)`", bullet))
    assert called >= {"model", "engine", "drain/policy", "report"}
    assert [name for name in called if name.rstrip("/") not in core | {"health"}] == []


def test_the_architecture_names_modules_that_exist_and_every_one_of_the_controller() -> None:
    text = (DOCS / "architecture.md").read_text()
    for path in re.findall(r"`((?:ibmon|tests|bench)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    rows = re.findall(
        r"^\| ((?:`\w+`(?: \(`\w+`\))?(?:, )?)+) \|", text.partition("## The fleet controller")[2], re.MULTILINE
    )
    named = {name for row in rows for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row))}
    assert named == {file.stem for file in (ROOT / "ibmon/controller").glob("*.py")} - {"__init__"}


# ----------------------------------------------------------------------------------------------------------- names


def test_the_page_of_commands_is_the_one_that_they_give() -> None:
    shown = (DOCS / "commands.md").read_text()
    assert shown == commandsdoc.page(), "run: python -m ibmon.cli.commandsdoc > docs/commands.md"


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command by its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            if (found := command.get_command(context, below)) is not None:
                yield from leaves(found, f"{name} {below}")


def test_every_command_has_a_section_with_every_option() -> None:
    sections = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", (DOCS / "commands.md").read_text(), re.MULTILINE))
    for name, command in list(leaves(GROUP, "ibmon"))[1:]:
        options = {word for one in command.params if isinstance(one, click.Option) for word in one.opts}
        shown = set(re.findall(r"(?<=[` ])--?[a-z-]+", sections[name]))
        assert sorted(options - shown - {"--config", "--sysfs"}) == []


METRICS = {family.name for family in (*SNAPSHOT_FAMILIES, *SELF_FAMILIES, *CONTROLLER_FAMILIES)}
COUNTERS = set(re.findall(r"`(ibmon_\w+)`", (DOCS / "counters.md").read_text()))
NO_METRICS = {"ibmon_recording"}  # the first key of a recording
ALERTS = {alert_name(name) for name in (*RULE_BY_ID, *WORDS)} | {alert.name for alert in FLEET} | {"IbmonTest"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_metric_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bibmon_\w*[a-z0-9]\b(?![<*_])", page.read_text())) - NO_METRICS
    known = METRICS | COUNTERS
    bare = {re.sub(r"_(sum|count|bucket)$", "", name) for name in named}
    assert sorted(bare - known) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_alert_that_is_named_exists(page: Path) -> None:
    assert sorted(set(re.findall(r"\bIbmon[A-Z]\w+\b(?!\*)", page.read_text())) - ALERTS) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_the_repository_that_is_named_is_there(page: Path) -> None:
    places = r"(?<![\w/.$-])(?:ibmon|tests|bench|deploy|systemd|dashboards|docs)/[\w*-][\w*./-]*"
    named = {place.rstrip("./") for place in re.findall(places, page.read_text())}
    assert sorted(place for place in named if not list(ROOT.glob(place))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_key_of_the_configuration_that_is_named_exists(page: Path) -> None:
    sections = "|".join(re.escape(section) for section in sorted(KEYS, key=len, reverse=True))
    for section, key in re.findall(rf"`({sections})\.([a-z_]+)\b(?!\.)", prose(page)):
        assert key in KEYS[section] or f"{section}.{key}" in KEYS, f"{section}.{key}"
