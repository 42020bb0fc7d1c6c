from ._answer.refusal import NoPlan as NoPlan
from ._answer.result import FleetResult as FleetResult
from ._ask import plan as plan
from ._reading.spec import Fleet as Fleet
from ._reading.spec import Model as Model
from ._reading.spec import Pool as Pool
from ._reading.spec import Site as Site
from ._reading.spec import read_fleet as read_fleet
