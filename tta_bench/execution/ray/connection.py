"""Connects to a cluster, or starts one on this machine, and disconnects."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tta_bench.errors import UserError
from tta_bench.execution.interrupt import handlers_kept
from tta_bench.execution.ray import packages
from tta_bench.execution.ray.environment import temporary_environment
from tta_bench.execution.ray.head import HeadWatch
from tta_bench.plugins.identity import PluginIdentity

# Ray reads these when it is imported; they silence messages that a user of this tool cannot act on.
QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}
# Ray's own default is 15, at which workers wait for every other process of the machine.
SAME_PRIORITY = {"RAY_worker_niceness": "0"}  # added to the niceness of the driver
# With this setting, which is named after systems where it is the default, Ray listens on loopback only.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set where `tta-bench submit` has sent the packages already


@contextmanager
def connected(
    address: str | None, cpus: int | None, plugins: Iterable[PluginIdentity] = ()
) -> Iterator[tuple[Any, HeadWatch]]:
    """Ray and the watch of its head node, until the block ends; without an address, a cluster of its own.

    At an address, all workers get the packages of these plugins and our own.
    """
    pairs = [(plugin.group, plugin.use) for plugin in plugins]
    with temporary_environment(QUIET | SAME_PRIORITY | (LOOPBACK if address is None else {})):
        import ray

        with handlers_kept(), tempfile.TemporaryDirectory(prefix="tta-bench-packages-") as folder:
            if address is None:
                options: dict[str, Any] = dict(num_cpus=cpus, include_dashboard=False)
            else:
                check_address(address)
                carried = [] if IN_A_JOB in os.environ else packages.copied(pairs, Path(folder))
                options = dict(runtime_env={"py_modules": carried}) if carried else {}
            _initialise(ray, address, options)
        watch = HeadWatch(ray.get_runtime_context().gcs_address)
        try:
            yield ray, watch
        finally:
            watch.close(ray.shutdown)


def _initialise(ray: Any, address: str | None, options: dict[str, Any]) -> None:
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # Ray raises its own errors, ConnectionError, RuntimeError, …
        raise UserError(
            f"Ray does not start: {error}. Try --engine local, or check --ray-address; a cluster that "
            "wants a token reads it from RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
        ) from error


def check_address(address: str) -> None:
    """Raise if the address cannot work, or nothing listens there; Ray itself would retry for minutes."""
    if address.startswith("ray://"):
        raise UserError(
            f"--ray-address {address}: runs cannot use the Ray client. Use `tta-bench submit` with the "
            "dashboard's address (http://HEAD:8265), or run on a node of the cluster with HEAD:6379."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():  # "auto", or another form that Ray understands
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray-address {address}: nobody answers: {error}. Check it.") from None
