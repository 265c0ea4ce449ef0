"""The file of users, and who it admits."""

from __future__ import annotations

import base64
import hashlib

import pytest

from ibmon.exporter.auth import load_users
from ibmon.exporter.errors import ExporterError

HASH = hashlib.sha256(b"long and random").hexdigest()


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.fixture
def users_file(tmp_path):
    def write(text, mode=0o640):
        path = tmp_path / "users"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return str(path)

    return write


@pytest.mark.parametrize(
    ("header", "admitted"),
    [
        (basic("prometheus:secret"), True),
        (basic("prometheus:secret").replace("Basic", "basic"), True),
        (basic("grafana:long and random"), True),
        (basic("colon:a:b"), True),
        (basic("m\u00fcller:\u00e9"), True),
        (basic("prometheus:Secret"), False),
        (basic("prometheus:secret "), False),
        (basic("grafana:" + HASH), False),
        (basic("grafana:{SHA256}" + HASH), False),
        (basic("nobody:secret"), False),
        (basic("prometheus"), False),
        (basic("prometheus:"), False),
        (basic(":"), False),
        ("Basic !!!", False),
        ("Basic /w==", False),
        ("Bearer secret", False),
        ("Basic", False),
        ("", False),
        (None, False),
    ],
)
def test_only_a_right_password_is_admitted(users_file, header, admitted):
    path = users_file(
        f"# who may scrape\n\nprometheus:secret\ngrafana:{{SHA256}}{HASH}\ncolon:a:b\nm\u00fcller:\u00e9\n"
    )
    assert load_users(path).admit(header) is admitted


def test_without_a_file_there_are_no_users():
    assert load_users("") is None


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        ("a:b\n", 0o644, "is open to everybody; run: chmod 640"),
        ("a:b\n", 0o602, "is open to everybody"),
        ("", 0o600, "names no user"),
        ("# nobody\n", 0o600, "names no user"),
        ("a:b\nno colon\n", 0o600, ":2 is not of the form user:password"),
        (":password\n", 0o600, ":1 is not of the form user:password"),
        ("user:\n", 0o600, ":1 is not of the form user:password"),
        ("a:{SHA256}abc\n", 0o600, "needs 64 hexadecimal digits"),
        ("a:{SHA256}" + "g" * 64 + "\n", 0o600, "needs 64 hexadecimal digits"),
        (b"\xff\xfe", 0o600, "is not UTF-8 text"),
    ],
)
def test_a_wrong_file_is_one_clear_line(users_file, content, mode, says):
    path = users_file(content, mode)
    with pytest.raises(ExporterError) as caught:
        load_users(path)
    line = str(caught.value)
    assert says in line
    assert line.startswith(f"exporter.basic_auth_file: {path}")
    assert "\n" not in line


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ExporterError, match=r"basic_auth_file: .*/none cannot be read: No such file"):
        load_users(str(tmp_path / "none"))


def test_passwords_are_not_in_the_error(users_file):
    with pytest.raises(ExporterError) as caught:
        load_users(users_file("hunter2\n", 0o600))
    assert "hunter2" not in str(caught.value)
