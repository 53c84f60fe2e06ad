"""The playground's files and their headers; how the page works is tested in a browser."""

import re
from importlib.resources import files

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from blockdraft.errors import ConfigError
from blockdraft.serving.playground import playground_routes
from blockdraft.serving.playground.routes import (
    CONTENT_SECURITY_POLICY,
    INDEX,
    PAGE_FILES,
    is_known,
    read_page_file,
)

PAGE = files("blockdraft.serving.playground") / "page"
TEXTS = {name: read_page_file(name).decode("ascii") for name in PAGE_FILES}
SCRIPTS = [name for name in PAGE_FILES if name.endswith(".js")]


@pytest.fixture
def client() -> TestClient:
    return TestClient(Starlette(routes=playground_routes()))


def path_of(name: str) -> str:
    return "/" if name == INDEX else f"/playground/{name}"


def test_the_folder_holds_exactly_what_is_served() -> None:
    assert {entry.name for entry in PAGE.iterdir()} == set(PAGE_FILES)


@pytest.mark.parametrize("name", PAGE_FILES)
def test_every_file_comes_with_strict_headers(client: TestClient, name: str) -> None:
    response = client.get(path_of(name))
    assert response.status_code == 200
    assert response.text == TEXTS[name]
    assert response.headers["content-type"] == PAGE_FILES[name]
    assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["referrer-policy"] == "no-referrer"


def test_the_policy_allows_nothing_inline_and_nothing_from_outside() -> None:
    parts = [part.partition(" ") for part in CONTENT_SECURITY_POLICY.split("; ")]
    directives = {name: value for name, _, value in parts}
    assert directives.pop("require-trusted-types-for") == "'script'"
    assert directives["default-src"] == "'none'"
    assert set(directives.values()) == {"'none'", "'self'"}


def test_a_known_file_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/playground/app.js")
    again = client.get("/playground/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    changed = client.get("/playground/app.js", headers={"If-None-Match": '"other"'})
    assert changed.status_code == 200


@pytest.mark.parametrize(
    ("header", "known"),
    [('"a"', True), ('W/"a"', True), ('"b", "a"', True), ("*", True), ("", False), ('"ab"', False)],
)
def test_entity_tags_compare_weakly(header: str, known: bool) -> None:
    assert is_known('"a"', header) is known


def test_head_has_no_body(client: TestClient) -> None:
    response = client.head("/")
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize("path", ["/playground/", "/playground/routes.py", "/playground/..%2f.."])
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_only_reading_is_allowed(client: TestClient) -> None:
    assert client.post("/").status_code == 405


def test_a_missing_file_is_a_broken_installation() -> None:
    with pytest.raises(ConfigError, match="install blockdraft again"):
        read_page_file("missing.js")


@pytest.mark.parametrize("name", PAGE_FILES)
def test_files_are_short_and_name_no_outside_resource(name: str) -> None:
    text = TEXTS[name].replace("http://www.w3.org/2000/svg", "")
    assert text.count("\n") <= 350
    assert not re.search(r"(https?:)?//\w+\.", text)


def test_the_page_has_no_inline_code_or_style() -> None:
    page = TEXTS[INDEX]
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)


def test_every_reference_is_a_served_file() -> None:
    named = re.findall(r'(?:src|href)="(?!#)([^"]+)"', TEXTS[INDEX])
    imported = [f"playground/{name}" for x in SCRIPTS for name in imports_of(TEXTS[x])]
    assert set(named) | set(imported) | {"playground/index.html"} == {
        f"playground/{name}" for name in PAGE_FILES
    }


def imports_of(script: str) -> list[str]:
    return re.findall(r'from "\./([\w.]+)";', script)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_turns_text_into_markup_or_code(name: str) -> None:
    risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    assert not re.search(risky, TEXTS[name])
    assert not re.search(r"localStorage|sessionStorage|document\.cookie|indexedDB", TEXTS[name])
