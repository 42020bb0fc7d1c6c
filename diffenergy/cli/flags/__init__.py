"""The flags of every command, one file each: `Flags`, whose docstring is the help."""
