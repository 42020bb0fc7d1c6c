from ._charts import style as style
from ._charts.style import save_figure as save_figure
from ._page.content import page as page
from ._page.content import page_html as page_html
from ._tables.columns import html as html
from ._tables.comparison import comparison as comparison
from ._tables.comparison import comparison_parts as comparison_parts
from ._traces.trace import trace_text as trace_text
