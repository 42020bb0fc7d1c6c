"""Problems from measured tables, with and without their noise."""
