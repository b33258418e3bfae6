"""Files as jobs on disk."""

from cotext.serving.jobs.queue import Jobs
from cotext.serving.jobs.values import JobOptions, JobStatus, JobTicket

__all__ = ["JobOptions", "JobStatus", "JobTicket", "Jobs"]
