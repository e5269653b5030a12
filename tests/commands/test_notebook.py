"""examples/explore.ipynb runs in a kernel, and shows tables and a progress bar."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "explore.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after it has run with this Python."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    specs = pytest.importorskip("jupyter_client.kernelspec")
    kernels = tmp_path_factory.mktemp("jupyter") / "kernels" / "python3"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = specs.KernelSpec(argv=command, display_name="Python 3", language="python")
    (kernels / "kernel.json").write_text(spec.to_json())
    notebook = nbformat.read(NOTEBOOK, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(kernels.parents[1]))
        patch.setenv("IPYTHONDIR", str(kernels.parents[1] / "ipython"))
        nbclient.NotebookClient(
            notebook, timeout=240, resources={"metadata": {"path": str(NOTEBOOK.parent)}}
        ).execute()
    return notebook


def outputs(notebook: Any, end: str) -> list[Any]:
    """The outputs of the one cell whose code ends so."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.endswith(end)]
    return list(cell.outputs)


def text_of(notebook: Any, end: str) -> str:
    """The value of that cell as text."""
    return str(outputs(notebook, end)[-1].data["text/plain"])


def test_it_is_shipped_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.slow
def test_objects_show_themselves(executed: Any) -> None:
    table = outputs(executed, 'results.table("cost")')[-1].data
    assert '<table class="tta-bench cost">' in table["text/html"]
    assert "resnet-micro W8A8" in table["text/plain"]
    assert "6 cells in" in text_of(executed, "plan(benchmark, limit=64)")
    assert "<Benchmark explore: 1 model × 2 quantizers" in text_of(executed, "\nbenchmark")
    assert "\\begin{table" in outputs(executed, "to_latex())")[-1].text


@pytest.mark.slow
def test_a_run_draws_one_progress_bar_up_to_its_end(executed: Any) -> None:
    shown = outputs(executed, "\nrun")
    texts = [output.data["text/plain"] for output in shown if "data" in output]
    bars = [text for text in texts if "24/24" in text]
    assert len(bars) == 1, "it replaces its own output"
    assert "━" in bars[0]
    assert texts[-1].startswith("explore: ran 6; 6 done.")
    assert not [output for output in shown if output.get("name") == "stderr"], "no warning of missing widgets"
