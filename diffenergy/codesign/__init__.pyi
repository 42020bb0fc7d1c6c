from ._problem.found import Found as Found
from ._problem.mixing import Part as Part
from ._problem.mixing import build as build
from ._search.engine import Effort as Effort
from ._search.searching import search as search
from ._space.axes import Range as Range
from ._tiles.tuning import tune as tune
