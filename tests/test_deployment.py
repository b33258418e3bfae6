"""The container and the workflows name what is there."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_what_the_container_copies_is_there_and_sent_to_the_builder() -> None:
    copied = [
        name
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    ]
    assert "src" in copied
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sent == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_server_of_the_container_and_of_compose_is_the_same() -> None:
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["cotext"]
    documented = (ROOT / "Dockerfile").read_text().replace(" \\\n#    ", "")
    assert service["command"] in documented
    assert service["read_only"] is True
    assert "--read-only" in documented


def test_workflows_test_the_interpreters_that_the_package_names() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert matrix["python"] == named
    extras = project["optional-dependencies"]
    assert "dev" in extras
    assert {"files", "serve", "ctranslate2"} <= set(extras)  # of the container
