from ._kernel_name import kernel_name as kernel_name
from ._listing import Listing as Listing
from ._listing import listing_lines as listing_lines
from ._listing import read_listings as read_listings
from ._workload import Workload as Workload
from ._workload import from_listings as from_listings
from ._workload import load_workload as load_workload
from .models import load_model as load_model
