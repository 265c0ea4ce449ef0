"""The controller's page: that it is whole, small, and can neither load nor forge anything."""

from __future__ import annotations

import re

import pytest
from pages import Page

from ibmon.controller import page
from ibmon.exporter.page import HEADERS

SIZE = 60_000  # bytes of all files together


@pytest.fixture(scope="module")
def files():
    return page.load()


def test_all_that_the_page_loads_is_here_and_together_it_is_small(files):
    found = Page(files["/"].body.decode())
    wanted = {f"/{value}" for tag, _, value in found.loads if tag in {"link", "script"}}
    assert wanted | {"/"} == files.keys()
    assert sum(len(file.body) for file in files.values()) <= SIZE


def test_scripts_import_nothing_from_elsewhere_and_make_no_markup(files):
    scripts = {path: file.body.decode() for path, file in files.items() if path.endswith(".js")}
    imported = {name for text in scripts.values() for name in re.findall(r'from "(.*?)"', text)}
    assert {name.removeprefix(".") for name in imported} <= scripts.keys()
    for text in scripts.values():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_every_element_that_the_scripts_ask_for_by_name_is_on_the_page(files):
    asked = {name for file in files.values() for name in re.findall(r'\$\("(.*?)"\)', file.body.decode())}
    ids = Page(files["/"].body.decode()).ids
    assert asked <= set(ids)
    assert len(ids) == len(set(ids))


def test_every_file_has_the_policy_its_type_and_a_tag_that_changes_with_it(files):
    assert {file.headers["Content-Security-Policy"] for file in files.values()} == {HEADERS["Content-Security-Policy"]}
    kinds = {path: file.content_type.partition(";")[0] for path, file in files.items()}
    assert kinds["/"] == "text/html"
    assert kinds["/app.js"] == "text/javascript"
    assert kinds["/style.css"] == "text/css"
    assert kinds["/icon.svg"] == "image/svg+xml"
    assert len({file.etag for file in files.values()}) == len(files)
    assert all(re.fullmatch(r'"[0-9a-f]{16}"', file.etag) for file in files.values())
