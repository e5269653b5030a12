"""The files of examples/cluster/: shells and YAML parse, and their commands exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tta_bench.cli import app

KIT = Path(__file__).parents[2] / "examples" / "cluster"
COMMAND = re.compile(r"tta-bench ((?:run|submit|fetch-results|status)\b[^`'\n]*)")


def test_the_script_for_slurm_is_sound() -> None:
    script = KIT / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    outcome = subprocess.run(["shellcheck", script], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.parametrize("name", ["slurm.sbatch", "rayjob.yaml", "cloud.yaml"])
def test_its_commands_and_options_exist(name: str) -> None:
    found = COMMAND.findall((KIT / name).read_text())
    assert found
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    for text in found:
        word, *rest = text.split()
        known = {option for parameter in commands[word].params for option in parameter.opts}
        options = [each for each in rest if each.startswith("-")]
        assert set(options) <= known, text
        assert {"--ray-address"} <= set(options), text


def test_the_manifest_for_kuberay_is_a_ray_job() -> None:
    """Field names and types of the RayJob resource, API version ray.io/v1."""
    job = yaml.safe_load((KIT / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    assert spec["submissionMode"] in ("K8sJobMode", "HTTPMode", "InteractiveMode")
    assert isinstance(spec["entrypoint"], str)
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > 28
        (container,) = pod["containers"]
        claimed = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= claimed
        assert all(isinstance(value, str) for value in container["resources"]["limits"].values())
    images = {group["template"]["spec"]["containers"][0]["image"] for group in groups}
    assert len(images) == 1, "all nodes need the same versions"


def test_the_file_for_the_cloud_fits_rays_schema() -> None:
    """Ray ships the schema that `ray up` checks a file against."""
    validate = pytest.importorskip("jsonschema").validate
    import json

    import ray.autoscaler

    schema = Path(ray.autoscaler.__file__).parent / "ray-schema.json"
    cloud = yaml.safe_load((KIT / "cloud.yaml").read_text())
    validate(cloud, json.loads(schema.read_text()))
    assert cloud["head_node_type"] in cloud["available_node_types"]
