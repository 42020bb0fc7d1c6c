from ._ask import search as search
from ._ask import tune as tune
from ._problem.problem import Share as Share
from ._request import Part as Part
from ._result import SearchResult as SearchResult
from ._result import TuneResult as TuneResult
from ._search.engine import Effort as Effort
from ._space.axes import Range as Range
