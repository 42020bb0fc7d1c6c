"""Commands: what each takes (`NAME_flags.py`) and does (`NAME.py`)."""
