"""The files in deploy/, as far as they can be checked without containers: by linters and schemas, and against the
program that they start."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from trimtab.api.app import create_app
from trimtab.api.cli import app
from trimtab.api.server import DEFAULT_PORT
from trimtab.api.service import Service
from trimtab.storage.database import Database

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
WITHOUT_SCHEMA = {"kustomization.yaml", "podmonitor.yaml"}
"""Read by kubectl alone, and by an operator: no schema of Kubernetes has them."""
KUBERNETES = ("1.30", "1.37")
"""Versions of which the manifests must be valid: the oldest that is meant, and the newest that there is a schema of."""
UNIT = (DEPLOY / "systemd/trimtab.service").read_text()


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def installed(name: str) -> Path:
    """A program of the environment that runs the tests."""
    return Path(sys.executable).parent / name


def absent(name: str, hint: str) -> None:
    """Skip a test that needs a program which is not here; in CI it has to be."""
    message = f"{name} is not installed ({hint})"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def check_command(words: list[str]) -> None:
    """Fail unless the command line has this command with these options."""
    command: Any = typer.main.get_command(app)
    name, *arguments = words
    command = command.get_command(typer.Context(command), name)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("-")} <= known, words


def test_the_image_is_built_as_it_should_be() -> None:
    if not installed("hadolint").exists():
        absent("hadolint", "its package has none for this machine")
    done = ran(installed("hadolint"), DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_image_starts_the_service_where_its_port_can_be_reached() -> None:
    lines = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r'^ENTRYPOINT \["trimtab"\]$', lines, re.MULTILINE)
    check_command(json.loads(re.findall(r"^CMD (\[.+\])$", lines, re.MULTILINE)[0]))
    assert f"EXPOSE {DEFAULT_PORT}" in lines
    assert f"http://127.0.0.1:{DEFAULT_PORT}/livez" in lines


def test_what_the_image_is_built_from_is_there() -> None:
    kept = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    assert kept
    assert [name for name in kept if not (DEPLOY.parent / name).exists()] == []
    links = [path.name for path in (DEPLOY.parent / "trimtab").iterdir() if path.is_symlink()]
    assert set(links) <= set(kept)


def test_the_compose_file_is_one() -> None:
    done = ran(installed("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_compose_file_mounts_and_publishes_is_there_and_for_this_machine_only() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DEPLOY / source).exists(), (name, volume)
        assert set(service.get("secrets", [])) <= compose["secrets"].keys()
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), (name, port)
    assert (DEPLOY / compose["services"]["trimtab"]["build"]["context"] / "pyproject.toml").exists()
    used = (DEPLOY / "prometheus/prometheus.yml").read_text() + (DEPLOY / "alertmanager/alertmanager.yml").read_text()
    named = set(re.findall(r"/run/secrets/(\w+)", used))
    assert named <= compose["secrets"].keys()


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", [path for path in MANIFESTS if path.name not in WITHOUT_SCHEMA], ids=lambda p: p.name)
def test_each_manifest_is_valid(path: Path, version: str) -> None:
    done = ran(installed("kubernetes-validate"), "--strict", "-k", version, path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_manifest_is_applied_or_said_to_be_left_out() -> None:
    applied = set(documents(DEPLOY / "kubernetes/kustomization.yaml")[0]["resources"])
    by_hand = {"secret.example.yaml", "tokens.yaml", "podmonitor.yaml", "kustomization.yaml"}
    assert {path.name for path in MANIFESTS} == applied | by_hand


def pods() -> Iterator[dict[str, Any]]:
    """What every pod is made by."""
    for path in MANIFESTS:
        for document in documents(path):
            if document["kind"] == "Pod":
                yield document["spec"]
            elif document["kind"] == "Deployment":
                yield document["spec"]["template"]["spec"]


def test_no_pod_may_do_more_than_it_needs() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            secret = {one["name"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})}
            assert secret == {"TRIMTAB_DB", "PGPASSWORD"}


def test_the_deployment_starts_and_asks_the_service_as_it_is(tmp_path: Path) -> None:
    (deployment,) = documents(DEPLOY / "kubernetes/deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    check_command(container["args"])
    assert [port["containerPort"] for port in container["ports"]] == [DEFAULT_PORT]
    database = Database(tmp_path / "agent.db")
    paths = create_app(Service(database)).openapi()["paths"]
    database.close()
    probes = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
    assert probes == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert set(probes.values()) <= paths.keys()
    assert deployment["spec"]["replicas"] == 2


def test_everything_that_selects_pods_selects_those_of_the_deployment() -> None:
    (deployment,) = documents(DEPLOY / "kubernetes/deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    found = {path.name: documents(path)[0]["spec"] for path in MANIFESTS if "spec" in documents(path)[0]}
    selectors = [
        found["service.yaml"]["selector"],
        found["disruption.yaml"]["selector"]["matchLabels"],
        found["network.yaml"]["podSelector"]["matchLabels"],
        found["podmonitor.yaml"]["selector"]["matchLabels"],
        found["deployment.yaml"]["selector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_the_operator_scrapes_as_the_rules_ask() -> None:
    (monitor,) = documents(DEPLOY / "kubernetes/podmonitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "trimtab"}]


def test_the_unit_is_one_and_lets_the_service_do_little(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        absent("systemd-analyze", "Debian: apt-get install systemd")
        return
    program = installed("trimtab")
    unit = tmp_path / "trimtab.service"
    unit.write_text(UNIT.replace("/opt/trimtab/bin/trimtab", str(program)))
    done = ran(analyze, "verify", unit)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = ran(
        analyze, "security", "--offline=yes", "--threshold=15", unit
    )  # in tenths, of 10: the most that is exposed
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_starts_the_service() -> None:
    program, *words = shlex.split(re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)[0])
    assert Path(program).name == "trimtab"
    check_command(words)
