from ._ask import import_listing as import_listing
from ._ask import is_listing as is_listing
from ._ask import read as read
from ._ask import refuse as refuse
from ._launches import Options as Options
from ._program.trace import trace as trace
from ._program.trace import trace_listing as trace_listing
from ._result import ImportResult as ImportResult
