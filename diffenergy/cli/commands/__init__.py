"""What every command does, one file each: `run(flags) -> Outcome`.

A module here loads when its command runs, after its flags are read, and so may import
what it needs at its top.
"""
