"""`/v2/document`: a file is uploaded, asked after and fetched once, with the key that its client was given."""

from pathlib import Path
from typing import Final

from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from cotext.serving.deepl.asked import Asked, asked, check_formality, refuse_unsupported, system_for
from cotext.serving.deepl.terms import glossary_entries
from cotext.serving.deepl.usage import check_quota, usage_of
from cotext.serving.errors import RequestError
from cotext.serving.jobs import JobOptions, JobStatus
from cotext.serving.requests import service_of
from cotext.serving.service import Client

UNSUPPORTED: Final = ("style_id", "translation_memory_id", "translation_memory_threshold")
# What clients upload a file under that has no name.
_UNNAMED: Final = ("", "file")


async def upload(request: Request) -> Response:
    """`POST /v2/document`: take a file."""
    wanted, client = await asked(request)
    file = wanted.value("file")
    if not isinstance(file, UploadFile):
        raise RequestError(400, "Parameter 'file' not specified; send the document as multipart/form-data")
    system = system_for(request, wanted)
    refuse_unsupported(wanted, UNSUPPORTED)
    check_formality(wanted, system)
    name = file.filename if file.filename not in (None, *_UNNAMED) else wanted.text("filename")
    name = name or file.filename or _UNNAMED[-1]
    _check_format(wanted, name)
    check_quota(request, client.name)
    service = service_of(request)
    options = JobOptions(tuple(glossary_entries(service, wanted, client, system)))
    ...
'''
