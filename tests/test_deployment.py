"""The container and the workflows name what is there; the steps of the container run in a bare folder."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.command_line import free_port

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


def test_workflows_must_pass_on_the_interpreters_that_the_package_names() -> None:
    """Others are tried: there is no upper cap, and the README names them untested."""
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]["test"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert re.findall(r"matrix.python != '([\d.]+)'", job["continue-on-error"]) == named
    assert set(named) < set(job["strategy"]["matrix"]["python"])
    assert project["requires-python"] == f">={named[0]}"
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"on Linux with Python {', '.join(named[:-1])} and {named[-1]}." in readme
    extras = project["optional-dependencies"]
    assert "dev" in extras
    assert {"files", "serve", "ctranslate2"} <= set(extras)  # of the container


@pytest.mark.outside
def test_the_steps_of_the_container_build_what_translates_and_serves(tmp_path: Path) -> None:
    """In place of a builder: the first stage in a folder with what is copied, then commands of the second.

    Installs torch and what the container needs, a gigabyte, with pip as it is set up here.
    """
    content = (ROOT / "Dockerfile").read_text().replace(" \\\n", " ")
    build, final = content.split("\nFROM ")[1:]
    (tmp_path / "cotext").mkdir()
    for line in build.splitlines():
        command, *names, target = line.split()
        for name in names if command == "COPY" else ():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, f"{tmp_path}{target}")
            else:
                shutil.copy(ROOT / name, f"{tmp_path}{target}")
    [steps] = re.findall(r"^RUN (.*)$", build, re.M)
    steps = re.sub(r"(?<![\w.])/(venv|cotext)\b", rf"{tmp_path}/\1", steps)
    steps = steps.replace("python -m venv", f"{sys.executable} -m venv")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_RETRIES": "0"}
    given = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    subprocess.run(["sh", "-ec", steps], cwd=tmp_path, env={**given, **environment}, check=True, timeout=1200)

    # A user with an empty home, from a folder without sources.
    environment["PATH"] = f"{tmp_path}/venv/bin:{environment['PATH']}"
    run, work = ROOT / "tests" / "formats-0.1.0" / "run", tmp_path / "work"
    work.mkdir()
    (work / "in.en").write_text("the cat sees\na dog runs\n")

    def cotext(*words: str | Path) -> str:
        done = subprocess.run(
            ["cotext", *map(str, words)], cwd=work, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "translate" in cotext("--help")
    cotext("translate", run, "in.en", "--out", "out.de")
    assert len((work / "out.de").read_text().splitlines()) == 2
    port = free_port()
    [health] = re.findall(r'CMD \["python", "-c", "(.*)"\]', final)
    server = subprocess.Popen(["cotext", "serve", str(run), "--port", str(port)], cwd=work, env=environment)
    try:
        check = ["python", "-c", health.replace("5000", str(port))]
        deadline = time.monotonic() + 120
        while subprocess.run(check, env=environment, capture_output=True, check=False).returncode:
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(1)
    finally:
        server.terminate()
        assert server.wait(60) == 0
