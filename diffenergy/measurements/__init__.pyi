from . import importers as importers
from ._metrics import Errors as Errors
from ._metrics import Predictions as Predictions
from ._metrics import errors as errors
from ._metrics import grouped as grouped
from ._table import Columns as Columns
from ._table import MeasurementTable as MeasurementTable
from ._table import read as read
