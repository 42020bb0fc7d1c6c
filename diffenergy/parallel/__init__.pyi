from ._host import Host as Host
from ._host import host_of as host_of
from ._placed import Placed as Placed
from ._placed import least_plan as least_plan
from ._plan import Plan as Plan
from ._plan import read_plan as read_plan
