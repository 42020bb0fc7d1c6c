"""What an answer says: its figures, what guesses leave open, the memory it needs."""
