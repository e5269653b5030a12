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
from jsonschema import ValidationError, validate
from typer.main import get_command

from tools.loopback import wait_for
from tta_bench.cli import app

KIT = Path(__file__).parents[2] / "examples" / "cluster"
COMMAND = re.compile(r"tta-bench ((?:run|submit|fetch-results|status)\b[^`'\n]*)")
TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}


def fields(required: str, **known: Any) -> dict[str, Any]:
    """The schema of an object with these fields and no others, which Kubernetes drops without a word."""
    return {
        "type": "object",
        "properties": known,
        "required": required.split(),
        "additionalProperties": False,
    }


# The fields that the file uses, with the types that ray.io/v1 and Kubernetes' core/v1 give them.
QUANTITIES = {
    "type": "object",
    "additionalProperties": {"type": "string", "pattern": r"^[0-9.]+([KMGT]i?|m)?$"},
}
MOUNT = fields("name mountPath", name=TEXT, mountPath={"type": "string", "pattern": "^/"})
CONTAINER = fields(
    "name image resources volumeMounts",
    name=TEXT,
    image={"type": "string", "pattern": r"^[^\s:]+:[^\s:]+$"},
    resources=fields("requests limits", requests=QUANTITIES, limits=QUANTITIES),
    volumeMounts={"type": "array", "items": MOUNT, "minItems": 1},
)
VOLUME = fields("name", name=TEXT, persistentVolumeClaim=fields("claimName", claimName=TEXT))
POD = fields(
    "containers volumes",
    containers={"type": "array", "items": CONTAINER, "minItems": 1, "maxItems": 1},
    volumes={"type": "array", "items": VOLUME},
)
TEMPLATE = fields("spec", spec=POD)
START = {"type": "object", "additionalProperties": {"type": "string"}}
WORKERS = fields(
    "groupName replicas minReplicas maxReplicas rayStartParams template",
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=START,
    template=TEMPLATE,
)
RAY_CLUSTER = fields(
    "headGroupSpec workerGroupSpecs",
    headGroupSpec=fields("rayStartParams template", rayStartParams=START, template=TEMPLATE),
    workerGroupSpecs={"type": "array", "items": WORKERS, "minItems": 1},
)
RAY_JOB = fields(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=fields("name", name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,45}[a-z0-9])?$"}),
    spec=fields(
        "entrypoint rayClusterSpec",
        entrypoint=TEXT,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        backoffLimit=COUNT,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT,
        rayClusterSpec=RAY_CLUSTER,
    ),
)


def test_the_script_for_slurm_is_sound() -> None:
    script = KIT / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    shellcheck = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert shellcheck, "in the test extra"
    outcome = subprocess.run([shellcheck, script], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stdout


STUBS = {
    "scontrol": 'case $1 in show) echo node1;; requeue) echo "$2" >> requeued;; esac',
    "srun": """while [[ $1 == --* ]]; do shift; done
case $1 in
  hostname) [[ $2 == --all-ip-addresses ]] && echo 10.0.0.1 172.17.0.1;;
  ray) echo "$@" > started; eval "exec $RAY";;
  *) exec "$@";;
esac""",
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
    facts["SLURM_CPUS_PER_TASK"] = "4"
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
    wait_for(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text(), 60)
    assert (
        "symmetric-run --address 10.0.0.1:20007 --min-nodes 1 --num-cpus 4 -- bash"
        in (tmp_path / "started").read_text()
    )
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


def ray_job() -> Any:
    return yaml.safe_load((KIT / "rayjob.yaml").read_text())


def test_the_manifest_for_kuberay_is_a_ray_job() -> None:
    job = ray_job()
    validate(job, RAY_JOB)
    cluster = job["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for pod in pods:
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= volumes
    assert len({pod["containers"][0]["image"] for pod in pods}) == 1, "all nodes need the same versions"


@pytest.mark.parametrize(
    ("place", "value"),
    [("entrypoint", None), ("backoffLimit", "3"), ("submissionMode", "k8s"), ("rayClusterSpecs", {})],
)
def test_a_manifest_with_a_mistake_does_not_fit_the_schema(place: str, value: object) -> None:
    job = ray_job()
    job["spec"][place] = value
    with pytest.raises(ValidationError):
        validate(job, RAY_JOB)


@pytest.mark.parametrize(("code", "then"), [(0, 0), (1, 0), (2, 2), (3, 3)])
def test_a_job_whose_cells_have_failed_is_not_tried_again(code: int, then: int, tmp_path: Path) -> None:
    """The command goes through KubeRay's shell, `ray job submit`, and the shell of the head node."""
    program = tmp_path / "tta-bench"
    program.write_text(f'#!/bin/sh\ntest "$1 $2" = "run /data/benchmark.yaml" || exit 9\nexit {code}\n')
    program.chmod(0o755)
    entrypoint = ray_job()["spec"]["entrypoint"]
    show = "import subprocess, sys; print(subprocess.list2cmdline(sys.argv[1:]))"
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    options: dict[str, Any] = {"env": os.environ | {"PATH": path, "SHOW": show}, "timeout": 60}
    first = ["bash", "-c", f'python -c "$SHOW" {entrypoint}']
    submitted = subprocess.run(first, capture_output=True, text=True, check=True, **options)
    assert subprocess.run(submitted.stdout.strip(), shell=True, **options).returncode == then


def test_the_file_for_the_cloud_fits_rays_schema() -> None:
    """Ray ships the schema that `ray up` checks a file against."""
    import json

    import ray.autoscaler

    schema = Path(ray.autoscaler.__file__).parent / "ray-schema.json"
    cloud = yaml.safe_load((KIT / "cloud.yaml").read_text())
    validate(cloud, json.loads(schema.read_text()))
    assert cloud["head_node_type"] in cloud["available_node_types"]
