from ._ask import import_listing as import_listing
from ._ask import is_listing as is_listing
from ._ask import read as read
from ._ask import refuse_file as refuse_file
from ._launches import ImportOptions as ImportOptions
from ._program.trace import trace as trace
from ._program.trace import trace_listing as trace_listing
from ._result import ImportResult as ImportResult
