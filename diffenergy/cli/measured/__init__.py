"""What was measured, and what it teaches: commands, each beside its flags."""
