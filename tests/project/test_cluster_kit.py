"""The files of examples/cluster/: shells and YAML parse, and their commands exist."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from tools.loopback import wait_for
from tta_bench.cli import app

KIT = Path(__file__).parents[2] / "examples" / "cluster"
COMMAND = re.compile(r"tta-bench ((?:run|submit|fetch-results|status)\b[^`'\n]*)")
# Fields of KubeRay's resources in ray.io/v1: Kubernetes drops others without a word, or refuses them.
KUBERAY = {
    "spec": """activeDeadlineSeconds backoffLimit clusterSelector deletionStrategy entrypoint
        entrypointNumCpus entrypointNumGpus entrypointResources jobId managedBy metadata rayClusterSpec
        runtimeEnvYAML shutdownAfterJobFinishes submissionMode submitterConfig submitterPodTemplate suspend
        ttlSecondsAfterFinished""",
    "rayClusterSpec": """autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions headGroupSpec
        headServiceAnnotations managedBy rayVersion suspend upgradeStrategy workerGroupSpecs""",
    "headGroupSpec": "enableIngress headService rayStartParams serviceType template",
    "workerGroupSpecs": """groupName idleTimeoutSeconds maxReplicas minReplicas numOfHosts rayStartParams
        replicas scaleStrategy suspend template""",
}


def test_the_script_for_slurm_is_sound() -> None:
    script = KIT / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck, "in the test extra"
    outcome = subprocess.run([shellcheck, script], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout


STUBS = {
    "scontrol": 'case $1 in show) echo node1;; requeue) echo "$2" >> requeued;; esac',
    "srun": "while [[ $1 == --* ]]; do shift; done\n"
    'case $1 in hostname) echo 10.0.0.1;; ray) touch started; eval "exec $RAY";; *) exec "$@";; esac',
}


def slurm_job(folder: Path, ray: str) -> subprocess.Popen[str]:
    """The script with programs of Slurm that run `ray` instead of a cluster."""
    for name, text in STUBS.items():
        program = folder / "programs" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/bash\n{text}\n")
        program.chmod(0o755)
    activate = folder / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f'export PATH="{folder}/programs:{Path(sys.executable).parent}:$PATH"\n')
    facts = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "node1", "RAY": ray}
    return subprocess.Popen(
        ["bash", KIT / "slurm.sbatch", "benchmark.yaml"],
        cwd=folder,
        env=os.environ | facts,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_job_whose_ray_does_not_start_has_not_succeeded(tmp_path: Path) -> None:
    """`ray symmetric-run` then ends with 0; the file of an earlier attempt says nothing."""
    (tmp_path / "tta-bench.7.pid").write_text("1")
    job = slurm_job(tmp_path, "true")
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 1
    assert "Ray did not start on node1" in errors
    assert not (tmp_path / "tta-bench.7.pid").exists()


def test_a_job_that_ends_before_its_driver_has_started_is_requeued(tmp_path: Path) -> None:
    job = slurm_job(tmp_path, "sleep 60")
    wait_for((tmp_path / "started").exists, 60)
    job.terminate()
    job.communicate(timeout=30)
    assert job.returncode == 128 + signal.SIGTERM
    assert (tmp_path / "requeued").read_text() == "7\n"


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
    for name, given in {**job, **spec, **cluster}.items():
        for each in given if isinstance(given, list) else [given]:
            assert name not in KUBERAY or set(each) <= set(KUBERAY[name].split()), name
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
    import json

    import ray.autoscaler
    from jsonschema import validate

    schema = Path(ray.autoscaler.__file__).parent / "ray-schema.json"
    cloud = yaml.safe_load((KIT / "cloud.yaml").read_text())
    validate(cloud, json.loads(schema.read_text()))
    assert cloud["head_node_type"] in cloud["available_node_types"]
