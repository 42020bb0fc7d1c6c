"""What is asked of a machine: blocks, who has them, who wants them; symmetries."""
