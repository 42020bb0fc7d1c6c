from ._ask import MeasurePlan as MeasurePlan
from ._ask import MeasureResult as MeasureResult
from ._ask import measure as measure
from ._ask import plan as plan
from ._request import MeasureRequest as MeasureRequest
from ._shapes import check_classes as check_classes
