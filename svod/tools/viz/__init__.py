"""Looking at plans: `plan_data` says all a plan knows as one JSON object, `report` writes it as a
page that needs nothing else, `view` serves it on the loopback address."""

from svod.tools.viz.plan_json import plan_data
from svod.tools.viz.report import page_data, report_html, write_report
from svod.tools.viz.server import Viewer, view, view_result
from svod.tools.viz.shown import Shown, collected

__all__ = [
    "Shown", "Viewer", "collected", "page_data", "plan_data", "report_html", "view",
    "view_result", "write_report",
]  # fmt: skip
