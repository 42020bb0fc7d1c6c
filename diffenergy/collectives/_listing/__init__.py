"""List scheduling: good schedules fast, for every collective."""
