"""Files as jobs on disk."""

from cotext.serving.jobs.queue import Jobs
from cotext.serving.jobs.table import JobOptions, JobStatus, JobTicket

__all__ = ["JobOptions", "JobStatus", "JobTicket", "Jobs"]
