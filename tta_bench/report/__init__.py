"""`tta-bench report`: one HTML page about a results folder, complete in itself.

    stores ─data.gather→ plain data ─build.page→ HTML ─build.write→ report.html

Every number of the page comes out of `table.build` and `render`, as those of the tables do.
"""

from tta_bench.report.build import page, write
from tta_bench.report.data import gather

__all__ = ["gather", "page", "write"]
