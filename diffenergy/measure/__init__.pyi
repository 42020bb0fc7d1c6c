from ._ask import measure as measure
from ._ask import plan as plan
from ._result import MeasureResult as MeasureResult
from ._result import PlanResult as PlanResult
