"""What runs learned, as one page: curves, evaluations, what differed, on what machine."""

from genelab.report.page import Report, write_report

__all__ = ["Report", "write_report"]
