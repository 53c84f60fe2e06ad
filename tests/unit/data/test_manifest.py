"""Manifests: written whole, read back, refused when damaged or of another version."""

from pathlib import Path

import pytest

from blockdraft.data.manifest import MANIFEST_FILE, SCHEMA, read_manifest, sha256_of, write_manifest
from blockdraft.errors import ConfigError


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"kind": "prompts", "rows": 3})
    assert read_manifest(tmp_path) == {"schema": SCHEMA, "kind": "prompts", "rows": 3}
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST_FILE]


def test_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    write_manifest(tmp_path, {"rows": 3})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_manifest(tmp_path, {"rows": float("nan")})
    assert read_manifest(tmp_path)["rows"] == 3
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "damaged"),
        (b"\xff", "damaged"),
        (b"[]", "should hold a JSON object, not list"),
        (b"{}", "schema None"),
        (b'{"schema": 99}', "schema 99"),
    ],
)
def test_other_files_are_refused(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST_FILE).write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        read_manifest(tmp_path)


def test_a_missing_one_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        read_manifest(tmp_path / "nowhere")


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_of(tmp_path / "empty") == expected
