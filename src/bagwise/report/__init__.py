"""One HTML file that shows what a model found: it needs no network and no other file."""

from bagwise.report.page import build_report, write_report

__all__ = ["build_report", "write_report"]
