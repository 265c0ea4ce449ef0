"""The file of tokens: its form, and what becomes of it when it is spoilt."""

from __future__ import annotations

import pytest
from controller_web import ALERT, OPERATE, TOKENS, VIEW

from ibmon.controller.tokens import Holder, TokenError, TokenFile, parse_tokens


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    return path


def test_each_line_is_a_name_a_role_and_a_token(file):
    tokens = TokenFile(str(file))

    assert tokens.holder(f"Bearer {VIEW}", 0) == Holder("grafana", "view")
    assert tokens.holder(f"Bearer {OPERATE}", 0) == Holder("alice", "operate")
    assert tokens.holder(f"Bearer {ALERT}", 0) == Holder("prometheus", "alert")


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", f"Basic {VIEW}", VIEW, f"Bearer {VIEW}x", "Bearer \udce9"]
)
def test_nothing_else_is_a_token(file, header):
    assert TokenFile(str(file)).holder(header, 0) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "f names nobody"),
        ("# nothing\n\n", "f names nobody"),
        (f"alice operate {VIEW}\nbob {VIEW}\n", "f, line 2: write name, role and token"),
        (f"alice operate {VIEW} more\n", "f, line 1: write name, role and token"),
        (f"alice admin {VIEW}\n", "f, line 1: there is no such role; write view, operate or alert"),
        ("alice operate tooshort0123456\n", "f, line 1: a token has 16 characters or more"),
        ("alice operate passw\u00f6rd0123456789\n", "f, line 1: a token has 16 characters or more"),
        (f"al/ice operate {VIEW}\n", "f, line 1: a name has letters"),
        (f"alice operate {VIEW}\nbob view {VIEW}\n", "f, line 2: this token stands in the file twice"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_its_token_is_not(text, says):
    with pytest.raises(TokenError) as error:
        parse_tokens(text, "f")

    assert str(error.value).startswith(says)
    for word in text.split():
        assert len(word) < 16 or word not in str(error.value)


def test_a_file_that_is_open_to_everybody_is_refused(file):
    file.chmod(0o604)
    with pytest.raises(TokenError, match=r"is open to everybody; run: chmod 600"):
        TokenFile(str(file))


def test_a_file_that_is_edited_wrongly_changes_nothing_and_is_logged_once(file, caplog):
    tokens = TokenFile(str(file))
    file.write_text(f"{TOKENS}mallory root {'x' * 20}\n")

    assert [tokens.holder(f"Bearer {VIEW}", at) for at in (0, 2, 4)] == [Holder("grafana", "view")] * 3
    [line] = [record.getMessage() for record in caplog.records]
    assert "line 5: there is no such role" in line
    assert "xxxx" not in line


def test_a_file_that_is_gone_admits_nobody_until_it_is_back(file, caplog):
    tokens = TokenFile(str(file))
    file.rename(file.with_suffix(".away"))
    assert tokens.holder(f"Bearer {VIEW}", 0) is None
    file.with_suffix(".away").rename(file)
    assert tokens.holder(f"Bearer {VIEW}", 2) == Holder("grafana", "view")

    assert len(caplog.records) == 1


def test_a_token_that_is_taken_out_is_worth_nothing_a_second_later(file):
    tokens = TokenFile(str(file))
    tokens.holder(None, 0)
    file.write_text(TOKENS.replace(VIEW, VIEW[::-1]))

    assert tokens.holder(f"Bearer {VIEW}", 1.1) is None
    assert tokens.holder(f"Bearer {VIEW[::-1]}", 1.1) == Holder("grafana", "view")


def test_no_token_is_in_a_repr(file):
    tokens = TokenFile(str(file))
    shown = f"{tokens!r} {vars(tokens)!r} {tokens.holder(f'Bearer {VIEW}', 0)!r}"

    assert not any(token in shown for token in (VIEW, OPERATE, ALERT))
