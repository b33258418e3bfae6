"""Reading and writing of corpora in eight formats, document by document; .xz and .gz are decompressed."""

from cotext.data.formats.corpus import languages_of_files as languages_of_files
from cotext.data.formats.corpus import located_documents as located_documents
from cotext.data.formats.corpus import read_documents as read_documents
from cotext.data.formats.corpus import read_parallel as read_parallel
from cotext.data.formats.corpus import second_file as second_file
from cotext.data.formats.corpus import write_documents as write_documents
from cotext.data.formats.corpus import write_parallel as write_parallel
from cotext.data.formats.corpus import write_translations as write_translations
from cotext.data.formats.table import FORMATS as FORMATS
from cotext.data.formats.table import detect_format as detect_format
from cotext.data.formats.table import is_corpus as is_corpus
