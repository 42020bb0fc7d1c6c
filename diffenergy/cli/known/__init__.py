"""What is known: commands that list it, each beside its flags."""
