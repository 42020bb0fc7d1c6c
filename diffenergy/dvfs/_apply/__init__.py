"""Plans put to use: launches, files, a script that sets the clocks."""
