"""Files as jobs on disk."""

from cotext.serving.jobs.queue import Jobs
from cotext.serving.jobs.values import Asker, JobOptions, JobStatus, JobTicket

__all__ = ["Asker", "JobOptions", "JobStatus", "JobTicket", "Jobs"]
