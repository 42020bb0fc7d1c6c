from ._numbers import Numbers as Numbers
from ._numbers import Shown as Shown
from ._numbers import Values as Values
from ._picture import picture as picture
from ._widgets import Explorer as Explorer
from ._widgets import explore as explore
